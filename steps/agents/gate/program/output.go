package main

import (
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	gather    = 250 * time.Millisecond
	gatherMax = 64 << 10
)

// output is one stream of the agent: of much its beginning is told as it comes, and its end at the end.
type output struct {
	stream  string
	read    *os.File
	out     *Teller
	mutex   sync.Mutex
	left    int    // bytes that may still be told as they come
	each    int    // bytes of the end that are kept
	pending []byte // not told yet
	tail    []byte
	skipped int
	count   atomic.Int64
	more    func() // called when something came
	done    chan struct{}
}

func newOutput(stream string, read *os.File, most int, out *Teller, more func()) *output {
	output := &output{stream: stream, read: read, out: out, left: most / 2, each: most / 2, more: more}
	output.done = make(chan struct{})
	return output
}

func (output *output) follow() {
	defer close(output.done)
	ticks := time.NewTicker(gather)
	defer ticks.Stop()
	go func() {
		for {
			select {
			case <-ticks.C:
				output.flush()
			case <-output.done:
				return
			}
		}
	}()
	buffer := make([]byte, maxReadSize)
	for {
		count, err := output.read.Read(buffer)
		output.take(buffer[:count])
		output.count.Add(int64(count))
		output.more()
		if err != nil {
			return
		}
	}
}

func (output *output) take(data []byte) {
	output.mutex.Lock()
	defer output.mutex.Unlock()
	now := data[:min(len(data), output.left)]
	output.left -= len(now)
	output.pending = append(output.pending, now...)
	if len(output.pending) >= gatherMax {
		output.tell()
	}
	if output.tail == nil && len(data) > len(now) {
		output.tail = make([]byte, 0, output.each+output.each/4+maxReadSize) // as much as it ever has
	}
	output.tail = append(output.tail, data[len(now):]...)
	if more := len(output.tail) - output.each; more > output.each/4 {
		output.skipped += more
		output.tail = append(output.tail[:0], output.tail[more:]...)
	}
}

func (output *output) flush() {
	output.mutex.Lock()
	defer output.mutex.Unlock()
	output.tell()
}

func (output *output) tell() {
	if len(output.pending) > 0 {
		output.out.tell(Told{Printed: &Printed{Stream: output.stream, Data: output.pending}})
		output.pending = nil
	}
}

func (output *output) waitUntil(moment time.Time) {
	select {
	case <-output.done:
	case <-time.After(time.Until(moment)):
	}
}

// close tells what is left, when nobody is there any more who could print.
func (output *output) close() {
	output.waitUntil(time.Now().Add(settle))
	output.flush()
	output.mutex.Lock()
	defer output.mutex.Unlock()
	if more := len(output.tail) - output.each; more > 0 {
		output.skipped += more
		output.tail = output.tail[more:]
	}
	for len(output.tail) > 0 {
		piece := output.tail[:min(len(output.tail), gatherMax)]
		output.out.tell(Told{Printed: &Printed{Stream: output.stream, Skipped: output.skipped, Data: piece}})
		output.tail, output.skipped = output.tail[len(piece):], 0
	}
	output.left, output.each = 0, 0
}
