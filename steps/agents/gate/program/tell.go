package main

import (
	"encoding/json"
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
	mutex sync.Mutex
	out   *os.File
	bell  int
}

func newTeller(out *os.File, bell string) *Teller {
	teller := &Teller{out: out, bell: -1}
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
	teller.write(told)
}

// Of a request the body is made in here, since it refers to those told before it.
func (teller *Teller) tellRequest(request *Request, pack func() Body) {
	teller.mutex.Lock()
	defer teller.mutex.Unlock()
	request.Body = pack()
	teller.write(Told{Request: request})
}

func (teller *Teller) write(told Told) {
	line, err := json.Marshal(told)
	if err != nil {
		panic(err)
	}
	teller.out.Write(append(line, '\n'))
	if teller.bell >= 0 && told.Printed == nil {
		syscall.Write(teller.bell, []byte("."))
	}
}
