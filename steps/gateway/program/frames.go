package main

import (
	"bufio"
	"compress/flate"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
)

// Frame is a line of stdout with exactly one field set. Its reader is steps/agents/gateway/frames.py.
type Frame struct {
	Listening int      `json:"listening,omitempty"`
	Request   *Request `json:"request,omitempty"`
	Withdrawn int      `json:"withdrawn,omitempty"` // number of a request whose client disconnected
	Printed   *Printed `json:"printed,omitempty"`
	Refused   *Refused `json:"refused,omitempty"`
	Ended     *Ended   `json:"ended,omitempty"`
}

// Request is a request that waits for its answer.
type Request struct {
	Number  int         `json:"number"`
	Method  string      `json:"method"`
	Path    string      `json:"path"`
	Headers [][2]string `json:"headers"`
	Body    Body        `json:"body"`
}

// Printed is output of the agent on a stream, after Skipped omitted bytes.
type Printed struct {
	Stream  string `json:"stream"`
	Skipped int    `json:"skipped,omitempty"`
	Data    []byte `json:"data"`
}

// Refused is a request that the gateway answered itself.
type Refused struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	Status int    `json:"status"`
}

// Ended is the last line: the command's end, or the reason why it did not start.
type Ended struct {
	ExitCode int            `json:"exit_code"`
	Killed   bool           `json:"killed,omitempty"` // ended on request
	Over     string         `json:"over,omitempty"`   // the limit that ended it; see watch.go
	Refused  map[string]int `json:"refused,omitempty"`
	Failure  string         `json:"failure,omitempty"`
}

// FrameWriter writes complete lines and wakes the reader, if it waits on the wake-up pipe.
type FrameWriter struct {
	mutex    sync.Mutex
	out      *bufio.Writer
	compress *flate.Writer
	piece    [pieceBytes]byte
	wakePipe int
}

func newFrameWriter(out *os.File, wakePipe string) *FrameWriter {
	compress, err := flate.NewWriter(nil, flate.BestSpeed)
	if err != nil {
		panic(err)
	}
	writer := &FrameWriter{out: bufio.NewWriterSize(out, pieceBytes), compress: compress, wakePipe: -1}
	if wakePipe != "" {
		if fd, err := syscall.Open(wakePipe, syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0); err == nil {
			writer.wakePipe = fd
		}
	}
	return writer
}

func (writer *FrameWriter) send(frame Frame) {
	writer.mutex.Lock()
	defer writer.mutex.Unlock()
	writer.out.Write(toJSON(frame))
	writer.endLine()
	if frame.Printed == nil {
		writer.wake()
	}
}

// sendRequest builds the body under the lock, because it refers to bodies sent before. Its data is copied from file to
// stdout in pieces, as the last field of the line's innermost object.
func (writer *FrameWriter) sendRequest(request *Request, pack func() Body) {
	writer.mutex.Lock()
	defer writer.mutex.Unlock()
	request.Body = pack()
	line := toJSON(Frame{Request: request})
	writer.out.Write(line[:len(line)-len(`}}}`)])
	writer.out.WriteString(`,"data":"`)
	encoder := base64.NewEncoder(base64.StdEncoding, writer.out)
	writer.compress.Reset(encoder)
	between := request.Body.between
	count, err := io.CopyBuffer(writer.compress, between, writer.piece[:])
	if count < between.Size() && writer.out.Flush() == nil {
		panic(fmt.Sprint("a request's body is missing in its file: ", err)) // half of its line is already sent
	}
	writer.compress.Close()
	encoder.Close()
	writer.out.WriteString(`"}}}`)
	writer.endLine()
	writer.wake()
}

func (writer *FrameWriter) endLine() {
	writer.out.WriteByte('\n')
	writer.out.Flush()
}

func (writer *FrameWriter) wake() {
	if writer.wakePipe >= 0 {
		syscall.Write(writer.wakePipe, []byte("."))
	}
}

func toJSON(frame Frame) []byte {
	line, err := json.Marshal(frame)
	if err != nil {
		panic(err)
	}
	return line
}
