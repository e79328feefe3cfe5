package main

import (
	"compress/flate"
	"io"
	"slices"
	"time"
)

const (
	leftAnswers = 64
	leftFor     = 10 * time.Minute
)

// waitingRequest stays for a while where its client did not get the answer, and may ask again.
type waitingRequest struct {
	digest   [16]byte
	clients  int
	answered chan struct{}
	answer   *Answer
	left     time.Time // when it was last without a client
}

// A client that lost patience and asks the same again gets the answer that is on its way: no call is asked twice. The
// request's body is taken over.
func (gate *Gate) enter(request *httpRequest, digest [16]byte) (int, *waitingRequest) {
	gate.mutex.Lock()
	defer gate.mutex.Unlock()
	gate.forget()
	unanswered := 0
	for number, each := range gate.waiting {
		if each.clients == 0 && each.digest == digest {
			each.clients++
			request.body.Close()
			return number, each
		}
		if each.answer == nil {
			unanswered++
		}
	}
	if unanswered >= gate.config.AtATime {
		request.body.Close()
		return 0, nil
	}
	gate.last++
	number := gate.last
	waiting := &waitingRequest{digest: digest, clients: 1, answered: make(chan struct{})}
	gate.waiting[number] = waiting
	told := &Request{Number: number, Method: request.method, Path: request.path, Headers: request.headers}
	gate.out.tellRequest(told, func() Body { return gate.bodies.pack(number, request.body) })
	if !slices.Contains(told.Body.Kept, number) {
		request.body.Close()
	}
	request.headers = nil // it may wait for long
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
	err := gate.write(conn, request, waiting.answer)
	gate.leave(number, waiting, err != nil)
	return err
}

// write writes a few answers at a time: each takes memory until its client has read it.
func (gate *Gate) write(conn *connection, request *httpRequest, answer *Answer) error {
	gate.writing <- struct{}{}
	defer func() { <-gate.writing }()
	if answer.body == nil {
		return gate.refuse(conn, request, &httpError{503, "there was no room for the answer"})
	}
	body := flate.NewReader(io.NewSectionReader(answer.body, 0, answer.body.size))
	return conn.write(request, answer.Status, answer.Headers, answer.Size, body)
}

func (gate *Gate) leave(number int, waiting *waitingRequest, hungUp bool) {
	gate.mutex.Lock()
	defer gate.mutex.Unlock()
	waiting.clients--
	waiting.left = time.Now()
	switch {
	case !hungUp:
		gate.remove(number)
	case waiting.answer == nil:
		gate.out.tell(Told{Withdrawn: number})
	}
	gate.forget()
}

func (gate *Gate) answer(answer *Answer) {
	gate.mutex.Lock()
	defer gate.mutex.Unlock()
	waiting := gate.waiting[answer.Number]
	if waiting == nil || waiting.answer != nil {
		answer.close()
		return
	}
	waiting.answer, waiting.left = answer, time.Now()
	close(waiting.answered)
	gate.forget()
}

// forget removes what nobody has asked for again for long, or for longest where there is much of it.
func (gate *Gate) forget() {
	for {
		number, count := gate.longestLeft()
		if count == 0 || count <= leftAnswers && time.Since(gate.waiting[number].left) < leftFor {
			return
		}
		gate.remove(number)
	}
}

// longestLeft is, of so many answered requests without a client, the one that has been so for longest.
func (gate *Gate) longestLeft() (number, count int) {
	for at, each := range gate.waiting {
		if each.clients == 0 && each.answer != nil {
			count++
			if number == 0 || each.left.Before(gate.waiting[number].left) {
				number = at
			}
		}
	}
	return number, count
}

// giveUpOne makes room for an answer, where there is one that nobody has asked for again.
func (gate *Gate) giveUpOne() bool {
	gate.mutex.Lock()
	defer gate.mutex.Unlock()
	number, count := gate.longestLeft()
	if count > 0 {
		gate.remove(number)
	}
	return count > 0
}

func (gate *Gate) remove(number int) {
	gate.waiting[number].answer.close()
	delete(gate.waiting, number)
}
