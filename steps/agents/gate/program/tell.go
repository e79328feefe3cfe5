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

// Told is one line of stdout: one of its fields is there. Its reader is steps/agents/gate/frames.py.
type Told struct {
	Listening int      `json:"listening,omitempty"`
	Request   *Request `json:"request,omitempty"`
	Withdrawn int      `json:"withdrawn,omitempty"` // the number of a request whose client has hung up
	Printed   *Printed `json:"printed,omitempty"`
	Refused   *Refused `json:"refused,omitempty"`
	Ended     *Ended   `json:"ended,omitempty"`
}

// Request is one that waits for its answer.
type Request struct {
	Number  int         `json:"number"`
	Method  string      `json:"method"`
	Path    string      `json:"path"`
	Headers [][2]string `json:"headers"`
	Body    Body        `json:"body"`
}

// Printed is what the agent wrote to a stream; before it so many bytes were left out.
type Printed struct {
	Stream  string `json:"stream"`
	Skipped int    `json:"skipped,omitempty"`
	Data    []byte `json:"data"`
}

// Refused is a request that was answered here.
type Refused struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	Status int    `json:"status"`
}

// Ended is the last line: how the command ended, or why nothing was started.
type Ended struct {
	ExitCode int            `json:"exit_code"`
	Killed   bool           `json:"killed,omitempty"` // it was asked to end
	Over     string         `json:"over,omitempty"`   // the bound that ended it; see watch.go
	Refused  map[string]int `json:"refused,omitempty"`
	Failure  string         `json:"failure,omitempty"`
}

// Teller writes whole lines, and rings for who waits for one.
type Teller struct {
	mutex    sync.Mutex
	out      *bufio.Writer
	compress *flate.Writer
	piece    [pieceBytes]byte
	bell     int
}

func newTeller(out *os.File, bell string) *Teller {
	compress, err := flate.NewWriter(nil, flate.BestSpeed)
	if err != nil {
		panic(err)
	}
	teller := &Teller{out: bufio.NewWriterSize(out, pieceBytes), compress: compress, bell: -1}
	if bell != "" {
		if fd, err := syscall.Open(bell, syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0); err == nil {
			teller.bell = fd
		}
	}
	return teller
}

func (teller *Teller) tell(told Told) {
	teller.mutex.Lock()
	defer teller.mutex.Unlock()
	teller.out.Write(toJSON(told))
	teller.endLine()
	if told.Printed == nil {
		teller.ring()
	}
}

// Of a request the body is made in here, since it refers to those told before it. Its data goes from file to stdout in
// pieces, as the last field of the line's innermost object.
func (teller *Teller) tellRequest(request *Request, pack func() Body) {
	teller.mutex.Lock()
	defer teller.mutex.Unlock()
	request.Body = pack()
	line := toJSON(Told{Request: request})
	teller.out.Write(line[:len(line)-len(`}}}`)])
	teller.out.WriteString(`,"data":"`)
	letters := base64.NewEncoder(base64.StdEncoding, teller.out)
	teller.compress.Reset(letters)
	between := request.Body.between
	count, err := io.CopyBuffer(teller.compress, between, teller.piece[:])
	if count < between.Size() && teller.out.Flush() == nil {
		panic(fmt.Sprint("a request's body is gone from its file: ", err)) // and half of its line is told
	}
	teller.compress.Close()
	letters.Close()
	teller.out.WriteString(`"}}}`)
	teller.endLine()
	teller.ring()
}

func (teller *Teller) endLine() {
	teller.out.WriteByte('\n')
	teller.out.Flush()
}

func (teller *Teller) ring() {
	if teller.bell >= 0 {
		syscall.Write(teller.bell, []byte("."))
	}
}

func toJSON(told Told) []byte {
	line, err := json.Marshal(told)
	if err != nil {
		panic(err)
	}
	return line
}
