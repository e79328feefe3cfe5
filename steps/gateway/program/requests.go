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

// Allowed is an allowed request; a path that ends in * is a prefix.
type Allowed struct {
	Method string `json:"method"`
	Path   string `json:"path"`
}

const (
	connections         = 128
	maxConcurrent       = 16 // concurrent reads of heads, and writes of answers
	maxReportedRefusals = 20
	fullBodies          = 3 // bodies of the largest size that fit on the disk
)

// Gateway is the server with the requests that wait for an answer.
type Gateway struct {
	config       *Config
	out          *FrameWriter
	bodies       *Bodies
	mutex        sync.Mutex
	last         int
	waiting      map[int]*waitingRequest
	refused      map[string]int
	heads        chan struct{} // slots for reading heads
	reading      chan struct{} // slots for bodies that are read or wait for space
	writing      chan struct{} // slots for writing answers
	spools       *Spools
	bodyBudget   *budget
	answerBudget *budget
	rate         *bucket
}

// newGateway returns a gateway that stores bodies and answers in a folder; see spool.go.
func newGateway(config *Config, out *FrameWriter, folder string) *Gateway {
	return &Gateway{
		config: config, out: out, bodies: &Bodies{}, waiting: map[int]*waitingRequest{}, refused: map[string]int{},
		heads: make(chan struct{}, maxConcurrent), reading: make(chan struct{}, config.MaxConcurrent),
		writing: make(chan struct{}, maxConcurrent), rate: newBucket(config.RequestsPerSecond), spools: newSpools(folder),
		bodyBudget: newBudget(fullBodies*config.BodyBytes + maxStoredBytes), answerBudget: newBudget(answersBytes),
	}
}

func (gateway *Gateway) listen() error {
	listener, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(gateway.config.Port))
	if err != nil {
		return err
	}
	slots := make(chan struct{}, connections)
	go func() {
		for {
			slots <- struct{}{}
			conn, err := listener.Accept()
			if err != nil {
				time.Sleep(10 * time.Millisecond) // all file descriptors are in use
				<-slots
				continue
			}
			go func() {
				defer func() { <-slots }()
				defer conn.Close()
				gateway.serve(newConnection(conn))
			}()
		}
	}()
	return nil
}

// serve answers one request after the other, until an error ends the connection.
func (gateway *Gateway) serve(conn *connection) {
	next := make(chan error, 1)
	conn.SetReadDeadline(time.Now().Add(idleTimeout))
	next <- conn.wait()
	for <-next == nil {
		gateway.heads <- struct{}{}
		request, err := conn.readHead(gateway.config.HeaderBytes, gateway.config.Headers)
		<-gateway.heads
		var digest [16]byte
		if err == nil {
			digest, err = gateway.admit(conn, request)
		}
		var refused *httpError
		switch {
		case errors.As(err, &refused):
			if request == nil {
				request = &httpRequest{}
			}
			request.last = true // the rest of it is not read
			gateway.refuse(conn, request, refused)
			conn.linger()
			return
		case err != nil:
			return
		}
		number, waiting := gateway.register(request, digest)
		go func() { next <- conn.wait() }()
		if waiting == nil {
			reason := fmt.Sprintf("more than %d requests wait", gateway.config.MaxConcurrent)
			err = gateway.refuse(conn, request, &httpError{429, reason})
		} else {
			err = gateway.deliver(conn, request, number, waiting, next)
		}
		if err != nil || request.last {
			return
		}
		conn.SetReadDeadline(time.Now().Add(idleTimeout))
	}
}

// admit reads the body of an allowed request once there is space for it. Return the digest of the whole request.
func (gateway *Gateway) admit(conn *connection, request *httpRequest) (digest [16]byte, err error) {
	if !gateway.allows(request.method, request.path) {
		path := request.path[:min(len(request.path), 200)]
		return digest, &httpError{404, request.method + " " + path + " is not served here"}
	}
	// Bytes that were already buffered before the head were not counted by readHead.
	if request.letters() > gateway.config.HeaderBytes {
		return digest, &httpError{431, "the headers are too long"}
	}
	if !gateway.rate.allow() {
		return digest, &httpError{429, fmt.Sprintf("more than %g requests a second", gateway.config.RequestsPerSecond)}
	}
	select {
	case gateway.reading <- struct{}{}:
		defer func() { <-gateway.reading }()
	default:
		return digest, &httpError{429, fmt.Sprintf("more than %d requests at a time", gateway.config.MaxConcurrent)}
	}
	most, err := request.bodyRoom(gateway.config.BodyBytes)
	if err != nil {
		return digest, err
	}
	gateway.bodyBudget.reserve(most)
	request.body = gateway.spools.open(gateway.bodyBudget, most)
	hash := fnv.New128a()
	fmt.Fprintf(hash, "%s %s\n", request.method, request.path)
	if err := conn.readBody(request, most, io.MultiWriter(hash, request.body)); err != nil {
		request.body.Close()
		if errors.Is(err, errFull) {
			err = &httpError{503, fmt.Sprintf("the body cannot be stored: %v", err)}
		}
		return digest, err
	}
	request.body.releaseUnused()
	hash.Sum(digest[:0])
	return digest, nil
}

func (gateway *Gateway) allows(method, path string) bool {
	path, _, _ = strings.Cut(path, "?")
	for _, allowed := range gateway.config.Allowed {
		start, open := strings.CutSuffix(allowed.Path, "*")
		if allowed.Method == method && (path == allowed.Path || open && strings.HasPrefix(path, start)) {
			return true
		}
	}
	return false
}

// refuse answers in a form that clients of every protocol parse as an error of the service.
func (gateway *Gateway) refuse(conn *connection, request *httpRequest, failure *httpError) error {
	gateway.mutex.Lock()
	gateway.refused[strconv.Itoa(failure.status)]++
	count := 0
	for _, number := range gateway.refused {
		count += number
	}
	gateway.mutex.Unlock()
	if count <= maxReportedRefusals {
		path := request.path[:min(len(request.path), 200)]
		gateway.out.send(Frame{Refused: &Refused{request.method[:min(len(request.method), 20)], path, failure.status}})
	}
	kind := map[int]string{404: "not_found_error", 429: "rate_limit_error", 503: "api_error"}[failure.status]
	if kind == "" {
		kind = "invalid_request_error"
	}
	text, _ := json.Marshal(map[string]any{"type": "error", "error": map[string]string{"type": kind, "message": failure.reason}})
	headers := [][2]string{{"Content-Type", "application/json"}}
	if failure.status == 429 || failure.status == 503 {
		headers = append(headers, [2]string{"Retry-After", "1"})
	}
	return conn.write(request, failure.status, headers, len(text), bytes.NewReader(text))
}

// requestCount counts requests, including refused ones, and reports whether one waits for its answer.
func (gateway *Gateway) requestCount() (count int, waits bool) {
	gateway.mutex.Lock()
	defer gateway.mutex.Unlock()
	for _, waiting := range gateway.waiting {
		waits = waits || waiting.answer == nil
	}
	count = gateway.last
	for _, number := range gateway.refused {
		count += number
	}
	return count, waits
}

func (gateway *Gateway) refusals() map[string]int {
	gateway.mutex.Lock()
	defer gateway.mutex.Unlock()
	return gateway.refused
}
