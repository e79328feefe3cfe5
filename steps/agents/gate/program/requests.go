package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sort"
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
	bodyPatience = 60 * time.Second
	toldRefusals = 20
	forgotten    = 10 * time.Minute
)

// Gate has the requests that wait for an answer.
type Gate struct {
	config  *Config
	out     *Teller
	server  *http.Server
	bodies  *Bodies
	mutex   sync.Mutex
	last    int
	waiting map[int]*waitingRequest
	refused map[string]int
	slots   chan struct{}
	rate    *bucket
	closed  chan struct{}
}

// waitingRequest stays for a while where its client did not get the answer, and may ask again.
type waitingRequest struct {
	digest   [32]byte
	clients  int
	answered chan struct{}
	answer   *Answer
}

func newGate(config *Config, out *Teller) *Gate {
	return &Gate{
		config: config, out: out, bodies: newBodies(), waiting: map[int]*waitingRequest{}, refused: map[string]int{},
		slots: make(chan struct{}, config.AtATime), rate: newBucket(config.ASecond), closed: make(chan struct{}),
	}
}

// Port 0 becomes one that is free.
func (gate *Gate) listen() error {
	listener, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(gate.config.Port))
	if err != nil {
		return err
	}
	gate.config.Port = listener.Addr().(*net.TCPAddr).Port
	gate.server = &http.Server{
		Handler: gate, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: gate.config.HeaderBytes,
		ErrorLog: log.New(io.Discard, "", 0),
	}
	go gate.server.Serve(&fewConnections{listener, make(chan struct{}, connections)})
	return nil
}

func (gate *Gate) close() {
	close(gate.closed)
	gate.server.Close()
}

func (gate *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if status, reason := gate.refusal(r); status != 0 {
		gate.refuse(w, r, status, reason)
		return
	}
	select {
	case gate.slots <- struct{}{}:
		defer func() { <-gate.slots }()
	default:
		gate.refuse(w, r, http.StatusTooManyRequests, fmt.Sprintf("more than %d requests at a time", gate.config.AtATime))
		return
	}
	body, status := gate.readBody(w, r)
	if status != 0 {
		gate.refuse(w, r, status, fmt.Sprintf("the body must come in %s and have at most %d bytes", bodyPatience, gate.config.BodyBytes))
		return
	}
	number, request := gate.enter(r, body)
	if request == nil {
		gate.refuse(w, r, http.StatusTooManyRequests, fmt.Sprintf("more than %d requests wait", gate.config.AtATime))
		return
	}
	select {
	case <-request.answered:
		err := request.answer.write(w)
		gate.leave(number, request, err != nil || r.Context().Err() != nil)
	case <-r.Context().Done():
		gate.leave(number, request, true)
	case <-gate.closed:
	}
}

func (gate *Gate) refusal(r *http.Request) (int, string) {
	if !gate.allows(r.Method, r.URL.Path) {
		return http.StatusNotFound, fmt.Sprintf("%s %s is not served here", r.Method, r.URL.Path)
	}
	if count := len(headers(r)); count > gate.config.Headers {
		return http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("%d headers: at most %d", count, gate.config.Headers)
	}
	if !gate.rate.take() {
		return http.StatusTooManyRequests, fmt.Sprintf("more than %g requests a second", gate.config.ASecond)
	}
	return 0, ""
}

func (gate *Gate) allows(method, path string) bool {
	for _, each := range gate.config.Allowed {
		start, open := strings.CutSuffix(each.Path, "*")
		if each.Method == method && (path == each.Path || open && strings.HasPrefix(path, start)) {
			return true
		}
	}
	return false
}

func (gate *Gate) readBody(w http.ResponseWriter, r *http.Request) ([]byte, int) {
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(bodyPatience))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, gate.config.BodyBytes))
	control.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, http.StatusRequestEntityTooLarge
	case err != nil:
		return nil, http.StatusBadRequest
	}
	return body, 0
}

// A client that lost patience and asks the same again gets the answer that is on its way: no call is asked twice.
func (gate *Gate) enter(r *http.Request, body []byte) (int, *waitingRequest) {
	digest := sha256.Sum256(append([]byte(r.Method+" "+r.URL.RequestURI()+"\n"), body...))
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
	request := &waitingRequest{digest: digest, clients: 1, answered: make(chan struct{})}
	gate.waiting[number] = request
	told := &Request{Number: number, Method: r.Method, Path: r.URL.RequestURI(), Headers: headers(r)}
	gate.out.tellRequest(told, func() Body {
		packed := gate.bodies.pack(number, body)
		packed.Kept = gate.bodies.numbers()
		return packed
	})
	return number, request
}

func (gate *Gate) leave(number int, request *waitingRequest, hungUp bool) {
	gate.mutex.Lock()
	defer gate.mutex.Unlock()
	request.clients--
	switch {
	case !hungUp:
		delete(gate.waiting, number)
	case request.answer == nil:
		gate.out.tell(Told{Withdrawn: number})
	default:
		gate.forget(number)
	}
}

func (gate *Gate) answer(answer *Answer) {
	gate.mutex.Lock()
	defer gate.mutex.Unlock()
	if request := gate.waiting[answer.Number]; request != nil && request.answer == nil {
		request.answer = answer
		close(request.answered)
		if request.clients == 0 {
			gate.forget(answer.Number)
		}
	}
}

func (gate *Gate) forget(number int) {
	time.AfterFunc(forgotten, func() {
		gate.mutex.Lock()
		defer gate.mutex.Unlock()
		delete(gate.waiting, number)
	})
}

// In words that clients of every protocol take for an error of the service.
func (gate *Gate) refuse(w http.ResponseWriter, r *http.Request, status int, reason string) {
	gate.mutex.Lock()
	gate.refused[strconv.Itoa(status)]++
	count := 0
	for _, each := range gate.refused {
		count += each
	}
	gate.mutex.Unlock()
	if count <= toldRefusals {
		gate.out.tell(Told{Refused: &Refused{r.Method, r.URL.Path[:min(len(r.URL.Path), 200)], status}})
	}
	kind := map[int]string{http.StatusNotFound: "not_found_error", http.StatusTooManyRequests: "rate_limit_error"}[status]
	if kind == "" {
		kind = "invalid_request_error"
	}
	text, _ := json.Marshal(map[string]any{"type": "error", "error": map[string]string{"type": kind, "message": reason}})
	w.Header().Set("Content-Type", "application/json")
	if status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	w.Write(text)
}

func headers(r *http.Request) [][2]string {
	pairs := [][2]string{}
	for name, values := range r.Header {
		for _, value := range values {
			pairs = append(pairs, [2]string{strings.ToLower(name), value})
		}
	}
	sort.Slice(pairs, func(i, j int) bool { return pairs[i][0] < pairs[j][0] })
	return pairs
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

// fewConnections accepts one more when another is closed.
type fewConnections struct {
	net.Listener
	slots chan struct{}
}

func (few *fewConnections) Accept() (net.Conn, error) {
	few.slots <- struct{}{}
	conn, err := few.Listener.Accept()
	if err != nil {
		<-few.slots
		return nil, err
	}
	return &countedConnection{Conn: conn, release: sync.OnceFunc(func() { <-few.slots })}, nil
}

type countedConnection struct {
	net.Conn
	release func()
}

func (conn *countedConnection) Close() error {
	conn.release()
	return conn.Conn.Close()
}
