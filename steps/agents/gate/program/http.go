package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"sort"
	"strconv"
	"strings"
	"time"
)

// The part of HTTP/1.1 that a client on the same machine speaks. Go's own server knows TLS and HTTP/2 too, and is
// three times as large as all of this program.

const (
	headPatience = 10 * time.Second
	bodyPatience = 60 * time.Second
	idlePatience = 10 * time.Minute
	lineBytes    = 16 << 10
	lingering    = 2 * time.Second
	lingerBytes  = 64 << 20
)

// httpRequest is a request as it came; names of headers are in lower case.
type httpRequest struct {
	method  string
	path    string // with its query
	headers [][2]string
	body    []byte
	last    bool // its client closes the connection
}

func (request *httpRequest) header(name string) string {
	for _, pair := range request.headers {
		if pair[0] == name {
			return pair[1]
		}
	}
	return ""
}

// letters is how long all headers are.
func (request *httpRequest) letters() int {
	total := 0
	for _, pair := range request.headers {
		total += len(pair[0]) + len(pair[1])
	}
	return total
}

// httpError is answered with its status, and ends the connection.
type httpError struct {
	status int
	reason string
}

func (err *httpError) Error() string { return err.reason }

// connection reads at most as many bytes as are left.
type connection struct {
	net.Conn
	left int64
	in   *bufio.Reader
}

func newConnection(conn net.Conn) *connection {
	connection := &connection{Conn: conn}
	connection.in = bufio.NewReaderSize(connection, 4<<10)
	return connection
}

func (conn *connection) Read(data []byte) (int, error) {
	if conn.left <= 0 {
		return 0, errTooMuch
	}
	count, err := conn.Conn.Read(data[:min(int64(len(data)), conn.left)])
	conn.left -= int64(count)
	return count, err
}

var errTooMuch = errors.New("too much")

// wait is over when there is another request; the error when there will be none.
func (conn *connection) wait() error {
	conn.left = lineBytes
	_, err := conn.in.Peek(1)
	return err
}

// readHead reads a request but for its body.
func (conn *connection) readHead(most int) (*httpRequest, error) {
	conn.SetReadDeadline(time.Now().Add(headPatience))
	conn.left = int64(most)
	lines := textproto.NewReader(conn.in)
	first, err := lines.ReadLine()
	if err == nil && first == "" { // some clients send one more line than they announced
		first, err = lines.ReadLine()
	}
	if err != nil {
		return nil, headError(err)
	}
	words := strings.Split(first, " ")
	if len(words) != 3 || !strings.HasPrefix(words[2], "HTTP/1.") {
		return nil, &httpError{400, "not a request of HTTP/1.1"}
	}
	fields, err := lines.ReadMIMEHeader()
	if err != nil {
		return nil, headError(err)
	}
	request := &httpRequest{method: words[0], path: words[1], headers: pairs(fields)}
	request.last = words[2] == "HTTP/1.0" || strings.EqualFold(request.header("connection"), "close")
	return request, nil
}

func headError(err error) error {
	var protocol textproto.ProtocolError
	switch {
	case errors.Is(err, errTooMuch):
		return &httpError{431, "the headers are too long"}
	case errors.As(err, &protocol):
		return &httpError{400, "headers that cannot be read"}
	}
	return err
}

// readBody reads the body, of at most so many bytes.
func (conn *connection) readBody(request *httpRequest, most int64) (err error) {
	large := &httpError{413, fmt.Sprintf("the body has more than %d bytes", most)}
	if strings.EqualFold(request.header("expect"), "100-continue") {
		io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n")
	}
	conn.SetReadDeadline(time.Now().Add(bodyPatience))
	conn.left = 2*most + lineBytes // chunks may be small
	defer conn.SetReadDeadline(time.Time{})
	if encoding := request.header("transfer-encoding"); encoding != "" {
		if !strings.EqualFold(encoding, "chunked") {
			return &httpError{400, "a transfer encoding that is not known: " + encoding}
		}
		request.body, err = readChunks(conn.in, most, large)
		return err
	}
	length := request.header("content-length")
	if length == "" {
		return nil
	}
	size, err := strconv.ParseUint(length, 10, 62)
	switch {
	case err != nil:
		return &httpError{400, "a length that is no number"}
	case int64(size) > most:
		return large
	}
	request.body = make([]byte, size)
	_, err = io.ReadFull(conn.in, request.body)
	return err
}

func readChunks(in *bufio.Reader, most int64, large error) ([]byte, error) {
	body, lines := []byte{}, textproto.NewReader(in)
	for {
		line, err := lines.ReadLine()
		if err != nil {
			return nil, err
		}
		word, _, _ := strings.Cut(line, ";")
		size, err := strconv.ParseUint(strings.TrimSpace(word), 16, 62)
		switch {
		case err != nil:
			return nil, &httpError{400, "a chunk of no length"}
		case int64(len(body))+int64(size) > most:
			return nil, large
		case size == 0:
			_, err := lines.ReadMIMEHeader()
			return body, err
		}
		at := len(body)
		body = append(body, make([]byte, size)...)
		if _, err := io.ReadFull(in, body[at:]); err != nil {
			return nil, err
		}
		if end, err := lines.ReadLine(); err != nil || end != "" {
			return nil, &httpError{400, "a chunk without its end"}
		}
	}
}

// write answers; nothing is sent of a body that was not asked for.
func (conn *connection) write(request *httpRequest, status int, headers [][2]string, size int, body io.Reader) error {
	conn.SetWriteDeadline(time.Now().Add(bodyPatience))
	out := bufio.NewWriterSize(conn.Conn, 4<<10)
	fmt.Fprintf(out, "HTTP/1.1 %d %s\r\n", status, map[bool]string{true: "OK", false: "Refused"}[status < 400])
	for _, pair := range headers {
		switch strings.ToLower(pair[0]) {
		case "content-length", "transfer-encoding", "connection", "content-encoding", "keep-alive":
		default:
			fmt.Fprintf(out, "%s: %s\r\n", oneLine(pair[0]), oneLine(pair[1]))
		}
	}
	if request.last {
		io.WriteString(out, "Connection: close\r\n")
	}
	fmt.Fprintf(out, "Content-Length: %d\r\n\r\n", size)
	if request.method != "HEAD" {
		if count, err := io.Copy(out, body); err != nil || count != int64(size) {
			return errors.Join(err, io.ErrShortWrite)
		}
	}
	return out.Flush()
}

// linger lets a client that is still sending read what it was answered: closed at once, it would find the line broken.
func (conn *connection) linger() {
	if line, ok := conn.Conn.(*net.TCPConn); ok {
		line.CloseWrite()
		line.SetReadDeadline(time.Now().Add(lingering))
		io.CopyN(io.Discard, line, lingerBytes)
	}
}

func oneLine(text string) string {
	return strings.NewReplacer("\r", " ", "\n", " ").Replace(text)
}

func pairs(fields textproto.MIMEHeader) [][2]string {
	pairs := [][2]string{}
	for name, values := range fields {
		for _, value := range values {
			pairs = append(pairs, [2]string{strings.ToLower(name), value})
		}
	}
	sort.SliceStable(pairs, func(i, j int) bool { return pairs[i][0] < pairs[j][0] })
	return pairs
}
