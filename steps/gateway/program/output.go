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

// output is a stream of the agent. Its beginning is sent at once; of longer output, its end is sent at the end.
type output struct {
	stream   string
	read     *os.File
	out      *FrameWriter
	mutex    sync.Mutex
	headRoom int    // bytes that may still be sent at once
	tailSize int    // bytes stored of the end
	pending  []byte // not sent yet
	tail     []byte
	skipped  int
	count    atomic.Int64
	onData   func()
	closed   chan struct{}
}

func newOutput(stream string, read *os.File, most int, out *FrameWriter, onData func()) *output {
	output := &output{stream: stream, read: read, out: out, headRoom: most / 2, tailSize: most / 2, onData: onData}
	output.closed = make(chan struct{})
	return output
}

func (output *output) follow() {
	defer close(output.closed)
	ticks := time.NewTicker(gather)
	defer ticks.Stop()
	go func() {
		for {
			select {
			case <-ticks.C:
				output.flush()
			case <-output.closed:
				return
			}
		}
	}()
	buffer := make([]byte, maxReadSize)
	for {
		count, err := output.read.Read(buffer)
		output.add(buffer[:count])
		output.count.Add(int64(count))
		output.onData()
		if err != nil {
			return
		}
	}
}

func (output *output) add(data []byte) {
	output.mutex.Lock()
	defer output.mutex.Unlock()
	now := data[:min(len(data), output.headRoom)]
	output.headRoom -= len(now)
	output.pending = append(output.pending, now...)
	if len(output.pending) >= gatherMax {
		output.send()
	}
	if output.tail == nil && len(data) > len(now) {
		output.tail = make([]byte, 0, output.tailSize+output.tailSize/4+maxReadSize) // its largest size
	}
	output.tail = append(output.tail, data[len(now):]...)
	if excess := len(output.tail) - output.tailSize; excess > output.tailSize/4 {
		output.skipped += excess
		output.tail = append(output.tail[:0], output.tail[excess:]...)
	}
}

func (output *output) flush() {
	output.mutex.Lock()
	defer output.mutex.Unlock()
	output.send()
}

func (output *output) send() {
	if len(output.pending) > 0 {
		output.out.send(Frame{Printed: &Printed{Stream: output.stream, Data: output.pending}})
		output.pending = nil
	}
}

func (output *output) waitUntil(moment time.Time) {
	select {
	case <-output.closed:
	case <-time.After(time.Until(moment)):
	}
}

// close sends the remaining output, after all processes that could print have ended.
func (output *output) close() {
	output.waitUntil(time.Now().Add(drainTimeout))
	output.flush()
	output.mutex.Lock()
	defer output.mutex.Unlock()
	if excess := len(output.tail) - output.tailSize; excess > 0 {
		output.skipped += excess
		output.tail = output.tail[excess:]
	}
	for len(output.tail) > 0 {
		piece := output.tail[:min(len(output.tail), gatherMax)]
		output.out.send(Frame{Printed: &Printed{Stream: output.stream, Skipped: output.skipped, Data: piece}})
		output.tail, output.skipped = output.tail[len(piece):], 0
	}
	output.headRoom, output.tailSize = 0, 0
}
