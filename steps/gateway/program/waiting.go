package main

import (
	"compress/flate"
	"io"
	"slices"
	"time"
)

const (
	maxUnclaimed     = 64
	unclaimedTimeout = 10 * time.Minute
)

// waitingRequest is stored for a while if its client did not get the answer, because the client may retry.
type waitingRequest struct {
	digest         [16]byte
	clients        int
	answered       chan struct{}
	answer         *Answer
	unclaimedSince time.Time // when its last client left, or its answer came
}

// register adds a request and takes over its body. A client that retries after a timeout is attached to the original
// request, so that no call is made twice.
func (gateway *Gateway) register(request *httpRequest, digest [16]byte) (int, *waitingRequest) {
	gateway.mutex.Lock()
	defer gateway.mutex.Unlock()
	gateway.evict()
	unanswered := 0
	for number, other := range gateway.waiting {
		if other.clients == 0 && other.digest == digest {
			other.clients++
			request.body.Close()
			return number, other
		}
		if other.answer == nil {
			unanswered++
		}
	}
	if unanswered >= gateway.config.MaxConcurrent {
		request.body.Close()
		return 0, nil
	}
	gateway.last++
	number := gateway.last
	waiting := &waitingRequest{digest: digest, clients: 1, answered: make(chan struct{})}
	gateway.waiting[number] = waiting
	frame := &Request{Number: number, Method: request.method, Path: request.path, Headers: request.headers}
	gateway.out.sendRequest(frame, func() Body { return gateway.bodies.pack(number, request.body) })
	if !slices.Contains(frame.Body.Kept, number) {
		request.body.Close()
	}
	request.headers = nil // frees memory during a long wait
	return number, waiting
}

// deliver waits for the answer and writes it. An error means that the client is gone; next receives it, too.
func (gateway *Gateway) deliver(
	conn *connection, request *httpRequest, number int, waiting *waitingRequest, next chan error,
) error {
	select {
	case <-waiting.answered:
	case err := <-next:
		if err != nil {
			gateway.removeClient(number, waiting, true)
			return err
		}
		next <- nil // its next request has arrived
		<-waiting.answered
	}
	err := gateway.write(conn, request, waiting.answer)
	gateway.removeClient(number, waiting, err != nil)
	return err
}

// write limits concurrent answers, because each takes memory until its client has read it.
func (gateway *Gateway) write(conn *connection, request *httpRequest, answer *Answer) error {
	gateway.writing <- struct{}{}
	defer func() { <-gateway.writing }()
	if answer.body == nil {
		return gateway.refuse(conn, request, &httpError{503, "there was no space for the answer"})
	}
	body := flate.NewReader(io.NewSectionReader(answer.body, 0, answer.body.size))
	return conn.write(request, answer.Status, answer.Headers, answer.Size, body)
}

func (gateway *Gateway) removeClient(number int, waiting *waitingRequest, isDisconnected bool) {
	gateway.mutex.Lock()
	defer gateway.mutex.Unlock()
	waiting.clients--
	waiting.unclaimedSince = time.Now()
	switch {
	case !isDisconnected:
		gateway.remove(number)
	case waiting.answer == nil:
		gateway.out.send(Frame{Withdrawn: number})
	}
	gateway.evict()
}

func (gateway *Gateway) answer(answer *Answer) {
	gateway.mutex.Lock()
	defer gateway.mutex.Unlock()
	waiting := gateway.waiting[answer.Number]
	if waiting == nil || waiting.answer != nil {
		answer.close()
		return
	}
	waiting.answer, waiting.unclaimedSince = answer, time.Now()
	close(waiting.answered)
	gateway.evict()
}

// evict removes unclaimed answers after a timeout, and the oldest ones if there are too many.
func (gateway *Gateway) evict() {
	for {
		number, count := gateway.oldestUnclaimed()
		if count == 0 || count <= maxUnclaimed && time.Since(gateway.waiting[number].unclaimedSince) < unclaimedTimeout {
			return
		}
		gateway.remove(number)
	}
}

// oldestUnclaimed returns the oldest answered request without a client, and the count of all such requests.
func (gateway *Gateway) oldestUnclaimed() (number, count int) {
	for at, other := range gateway.waiting {
		if other.clients == 0 && other.answer != nil {
			count++
			if number == 0 || other.unclaimedSince.Before(gateway.waiting[number].unclaimedSince) {
				number = at
			}
		}
	}
	return number, count
}

// evictOne frees space by removing the oldest unclaimed answer, if there is one.
func (gateway *Gateway) evictOne() bool {
	gateway.mutex.Lock()
	defer gateway.mutex.Unlock()
	number, count := gateway.oldestUnclaimed()
	if count > 0 {
		gateway.remove(number)
	}
	return count > 0
}

func (gateway *Gateway) remove(number int) {
	gateway.waiting[number].answer.close()
	delete(gateway.waiting, number)
}
