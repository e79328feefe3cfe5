package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Allowed is what may be asked; a path that ends in * stands for all that begin so.
type Allowed struct {
	Method string `json:"method"`
	Path   string `json:"path"`
}

const (
	connections  = 128
	atATime      = 16 // heads that are read, answers that are written
	toldRefusals = 20
	fullBodies   = 3 // of the largest size, for which there is room on the disk
)

// Gate has the requests that wait for an answer.
type Gate struct {
	config  *Config
	out     *Teller
	bodies  *Bodies
	mutex   sync.Mutex
	last    int
	waiting map[int]*waitingRequest
	refused map[string]int
	heads   chan struct{} // that are read at a time
	reading chan struct{} // bodies that are read at a time, or wait for room
	writing chan struct{} // answers that are written at a time
	spools  *Spools
	room    *room // for bodies
	answers *room
	rate    *bucket
}

// newGate keeps bodies and answers in a folder; see spool.go.
func newGate(config *Config, out *Teller, folder string) *Gate {
	return &Gate{
		config: config, out: out, bodies: &Bodies{}, waiting: map[int]*waitingRequest{}, refused: map[string]int{},
		heads: make(chan struct{}, atATime), reading: make(chan struct{}, config.AtATime),
		writing: make(chan struct{}, atATime), rate: newBucket(config.ASecond), spools: newSpools(folder),
		room: newRoom(fullBodies*config.BodyBytes + keptBytes), answers: newRoom(answersBytes),
	}
}

func (gate *Gate) listen() error {
	listener, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(gate.config.Port))
	if err != nil {
		return err
	}
	slots := make(chan struct{}, connections)
	go func() {
		for {
			slots <- struct{}{}
			conn, err := listener.Accept()
			if err != nil {
				time.Sleep(10 * time.Millisecond) // no descriptor is left: the agent has as many as it may have
				<-slots
				continue
			}
			go func() {
				defer func() { <-slots }()
				defer conn.Close()
				gate.serve(newConnection(conn))
			}()
		}
	}()
	return nil
}

// serve answers one request after the other, until an error ends the connection.
func (gate *Gate) serve(conn *connection) {
	next := make(chan error, 1)
	conn.SetReadDeadline(time.Now().Add(idlePatience))
	next <- conn.wait()
	for <-next == nil {
		gate.heads <- struct{}{}
		request, err := conn.readHead(gate.config.HeaderBytes, gate.config.Headers)
		<-gate.heads
		var digest [16]byte
		if err == nil {
			digest, err = gate.admit(conn, request)
		}
		var refused *httpError
		switch {
		case errors.As(err, &refused):
			if request == nil {
				request = &httpRequest{}
			}
			request.last = true // what is left of it is not read
			gate.refuse(conn, request, refused)
			conn.linger()
			return
		case err != nil:
			return
		}
		number, waiting := gate.enter(request, digest)
		go func() { next <- conn.wait() }()
		if waiting == nil {
			reason := fmt.Sprintf("more than %d requests wait", gate.config.AtATime)
			err = gate.refuse(conn, request, &httpError{429, reason})
		} else {
			err = gate.deliver(conn, request, number, waiting, next)
		}
		if err != nil || request.last {
			return
		}
		conn.SetReadDeadline(time.Now().Add(idlePatience))
	}
}

// admit reads the body of what may be asked, as soon as there is room for it. The digest is the whole request's.
func (gate *Gate) admit(conn *connection, request *httpRequest) (digest [16]byte, err error) {
	if !gate.allows(request.method, request.path) {
		path := request.path[:min(len(request.path), 200)]
		return digest, &httpError{404, request.method + " " + path + " is not served here"}
	}
	// What lay in the connection's buffer before the head was begun was not counted there.
	if request.letters() > gate.config.HeaderBytes {
		return digest, &httpError{431, "the headers are too long"}
	}
	if !gate.rate.take() {
		return digest, &httpError{429, fmt.Sprintf("more than %g requests a second", gate.config.ASecond)}
	}
	select {
	case gate.reading <- struct{}{}:
		defer func() { <-gate.reading }()
	default:
		return digest, &httpError{429, fmt.Sprintf("more than %d requests at a time", gate.config.AtATime)}
	}
	most, err := request.bodyRoom(gate.config.BodyBytes)
	if err != nil {
		return digest, err
	}
	gate.room.take(most)
	request.body = gate.spools.open(gate.room, most)
	hash := fnv.New128a()
	fmt.Fprintf(hash, "%s %s\n", request.method, request.path)
	if err := conn.readBody(request, most, io.MultiWriter(hash, request.body)); err != nil {
		request.body.Close()
		if errors.Is(err, errFull) {
			err = &httpError{503, fmt.Sprintf("the body cannot be kept: %v", err)}
		}
		return digest, err
	}
	request.body.fit()
	hash.Sum(digest[:0])
	return digest, nil
}

func (gate *Gate) allows(method, path string) bool {
	path, _, _ = strings.Cut(path, "?")
	for _, each := range gate.config.Allowed {
		start, open := strings.CutSuffix(each.Path, "*")
		if each.Method == method && (path == each.Path || open && strings.HasPrefix(path, start)) {
			return true
		}
	}
	return false
}

// refuse answers in words that clients of every protocol take for an error of the service.
func (gate *Gate) refuse(conn *connection, request *httpRequest, why *httpError) error {
	gate.mutex.Lock()
	gate.refused[strconv.Itoa(why.status)]++
	count := 0
	for _, each := range gate.refused {
		count += each
	}
	gate.mutex.Unlock()
	if count <= toldRefusals {
		path := request.path[:min(len(request.path), 200)]
		gate.out.tell(Told{Refused: &Refused{request.method[:min(len(request.method), 20)], path, why.status}})
	}
	kind := map[int]string{404: "not_found_error", 429: "rate_limit_error", 503: "api_error"}[why.status]
	if kind == "" {
		kind = "invalid_request_error"
	}
	text, _ := json.Marshal(map[string]any{"type": "error", "error": map[string]string{"type": kind, "message": why.reason}})
	headers := [][2]string{{"Content-Type", "application/json"}}
	if why.status == 429 || why.status == 503 {
		headers = append(headers, [2]string{"Retry-After", "1"})
	}
	return conn.write(request, why.status, headers, len(text), bytes.NewReader(text))
}

// asked counts requests, the refused ones included, and says whether an answer is waited for.
func (gate *Gate) asked() (count int, waits bool) {
	gate.mutex.Lock()
	defer gate.mutex.Unlock()
	for _, each := range gate.waiting {
		waits = waits || each.answer == nil
	}
	count = gate.last
	for _, each := range gate.refused {
		count += each
	}
	return count, waits
}

func (gate *Gate) refusals() map[string]int {
	gate.mutex.Lock()
	defer gate.mutex.Unlock()
	return gate.refused
}
