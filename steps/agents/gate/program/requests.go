package main

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
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
	toldRefusals = 20
	forgotten    = 10 * time.Minute
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
	reading chan struct{} // bodies that are read at a time
	rate    *bucket
}

// waitingRequest stays for a while where its client did not get the answer, and may ask again.
type waitingRequest struct {
	digest   [16]byte
	clients  int
	answered chan struct{}
	answer   *Answer
}

func newGate(config *Config, out *Teller) *Gate {
	return &Gate{
		config: config, out: out, bodies: newBodies(), waiting: map[int]*waitingRequest{}, refused: map[string]int{},
		reading: make(chan struct{}, config.AtATime), rate: newBucket(config.ASecond),
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
		request, err := conn.readHead(gate.config.HeaderBytes)
		if err == nil {
			err = gate.admit(conn, request)
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
		number, waiting := gate.enter(request)
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

// admit reads the body of what may be asked.
func (gate *Gate) admit(conn *connection, request *httpRequest) error {
	if !gate.allows(request.method, request.path) {
		return &httpError{404, request.method + " " + request.path[:min(len(request.path), 200)] + " is not served here"}
	}
	if count := len(request.headers); count > gate.config.Headers {
		return &httpError{431, fmt.Sprintf("%d headers: at most %d", count, gate.config.Headers)}
	}
	// What lay in the connection's buffer before the head was begun was not counted there.
	if request.letters() > gate.config.HeaderBytes {
		return &httpError{431, "the headers are too long"}
	}
	if !gate.rate.take() {
		return &httpError{429, fmt.Sprintf("more than %g requests a second", gate.config.ASecond)}
	}
	select {
	case gate.reading <- struct{}{}:
		defer func() { <-gate.reading }()
	default:
		return &httpError{429, fmt.Sprintf("more than %d requests at a time", gate.config.AtATime)}
	}
	return conn.readBody(request, gate.config.BodyBytes)
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

// A client that lost patience and asks the same again gets the answer that is on its way: no call is asked twice.
func (gate *Gate) enter(request *httpRequest) (int, *waitingRequest) {
	hash, digest := fnv.New128a(), [16]byte{}
	fmt.Fprintf(hash, "%s %s\n", request.method, request.path)
	hash.Write(request.body)
	hash.Sum(digest[:0])
	gate.mutex.Lock()
	defer gate.mutex.Unlock()
	unanswered := 0
	for number, each := range gate.waiting {
		if each.clients == 0 && each.digest == digest {
			each.clients++
			return number, each
		}
		if each.answer == nil {
			unanswered++
		}
	}
	if unanswered >= gate.config.AtATime {
		return 0, nil
	}
	gate.last++
	number := gate.last
	waiting := &waitingRequest{digest: digest, clients: 1, answered: make(chan struct{})}
	gate.waiting[number] = waiting
	told := &Request{Number: number, Method: request.method, Path: request.path, Headers: request.headers}
	gate.out.tellRequest(told, func() Body {
		packed := gate.bodies.pack(number, request.body)
		packed.Kept = gate.bodies.numbers()
		return packed
	})
	request.body = nil
	return number, waiting
}

// deliver waits for the answer, and writes it. Its error says that the client is gone; next is told so, too.
func (gate *Gate) deliver(
	conn *connection, request *httpRequest, number int, waiting *waitingRequest, next chan error,
) error {
	select {
	case <-waiting.answered:
	case err := <-next:
		if err != nil {
			gate.leave(number, waiting, true)
			return err
		}
		next <- nil // its next request is there already
		<-waiting.answered
	}
	answer := waiting.answer
	body := flate.NewReader(bytes.NewReader(answer.Body))
	err := conn.write(request, answer.Status, answer.Headers, answer.Size, body)
	gate.leave(number, waiting, err != nil)
	return err
}

func (gate *Gate) leave(number int, waiting *waitingRequest, hungUp bool) {
	gate.mutex.Lock()
	defer gate.mutex.Unlock()
	waiting.clients--
	switch {
	case !hungUp:
		delete(gate.waiting, number)
	case waiting.answer == nil:
		gate.out.tell(Told{Withdrawn: number})
	default:
		gate.forget(number)
	}
}

func (gate *Gate) answer(answer *Answer) {
	gate.mutex.Lock()
	defer gate.mutex.Unlock()
	if waiting := gate.waiting[answer.Number]; waiting != nil && waiting.answer == nil {
		waiting.answer = answer
		close(waiting.answered)
		if waiting.clients == 0 {
			gate.forget(answer.Number)
		}
	}
}

func (gate *Gate) forget(number int) {
	time.AfterFunc(forgotten, func() {
		gate.mutex.Lock()
		defer gate.mutex.Unlock()
		if waiting := gate.waiting[number]; waiting != nil && waiting.clients == 0 {
			delete(gate.waiting, number)
		}
	})
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
	kind := map[int]string{404: "not_found_error", 429: "rate_limit_error"}[why.status]
	if kind == "" {
		kind = "invalid_request_error"
	}
	text, _ := json.Marshal(map[string]any{"type": "error", "error": map[string]string{"type": kind, "message": why.reason}})
	headers := [][2]string{{"Content-Type", "application/json"}}
	if why.status == 429 {
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

// bucket lets so many through a second, twice as many at once.
type bucket struct {
	mutex sync.Mutex
	most  float64
	left  float64
	seen  time.Time
}

func newBucket(aSecond float64) *bucket {
	return &bucket{most: aSecond, left: 2 * aSecond, seen: time.Now()}
}

func (bucket *bucket) take() bool {
	bucket.mutex.Lock()
	defer bucket.mutex.Unlock()
	now := time.Now()
	bucket.left = min(2*bucket.most, bucket.left+bucket.most*now.Sub(bucket.seen).Seconds())
	bucket.seen = now
	if bucket.left < 1 {
		return false
	}
	bucket.left--
	return true
}
