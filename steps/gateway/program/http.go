package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// The subset of HTTP/1.1 that clients on the same machine use. Go's own server, with TLS and HTTP/2, is three times as
// large as this whole program.

const (
	headTimeout = 10 * time.Second
	bodyTimeout = 60 * time.Second
	idleTimeout = 10 * time.Minute
	lineBytes   = 16 << 10
	lingering   = 2 * time.Second
	lingerBytes = 64 << 20
)

// httpRequest is a received request; header names are in lower case.
type httpRequest struct {
	method  string
	path    string // with its query
	headers [][2]string
	body    *Spool
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

// letters returns the total length of all headers.
func (request *httpRequest) letters() int {
	total := 0
	for _, pair := range request.headers {
		total += len(pair[0]) + len(pair[1])
	}
	return total
}

// httpError is an error that is answered with a status and ends the connection.
type httpError struct {
	status int
	reason string
}

func (err *httpError) Error() string { return err.reason }

// connection reads at most remaining bytes.
type connection struct {
	net.Conn
	remaining int64
	in        *bufio.Reader
}

func newConnection(conn net.Conn) *connection {
	connection := &connection{Conn: conn}
	connection.in = bufio.NewReaderSize(connection, 4<<10)
	return connection
}

func (conn *connection) Read(data []byte) (int, error) {
	if conn.remaining <= 0 {
		return 0, errTooMuch
	}
	count, err := conn.Conn.Read(data[:min(int64(len(data)), conn.remaining)])
	conn.remaining -= int64(count)
	return count, err
}

var errTooMuch = errors.New("more bytes than allowed")

// wait returns when another request arrives, or an error if none will.
func (conn *connection) wait() error {
	conn.remaining = lineBytes
	_, err := conn.in.Peek(1)
	return err
}

// bodyRoom returns the body's size according to its head; for a chunked body the largest size allowed.
func (request *httpRequest) bodyRoom(most int64) (int64, error) {
	if encoding := request.header("transfer-encoding"); encoding != "" {
		if !strings.EqualFold(encoding, "chunked") {
			return 0, &httpError{400, "unsupported transfer encoding: " + encoding}
		}
		return most, nil
	}
	length := request.header("content-length")
	if length == "" {
		return 0, nil
	}
	size, err := strconv.ParseUint(length, 10, 62)
	switch {
	case err != nil:
		return 0, &httpError{400, "the content length is not a number"}
	case int64(size) > most:
		return 0, tooLarge(most)
	}
	return int64(size), nil
}

func tooLarge(most int64) error {
	return &httpError{413, fmt.Sprintf("the body has more than %d bytes", most)}
}

// readBody copies the body of at most size bytes (see bodyRoom).
func (conn *connection) readBody(request *httpRequest, size int64, to io.Writer) error {
	if strings.EqualFold(request.header("expect"), "100-continue") {
		io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n")
	}
	conn.SetReadDeadline(time.Now().Add(bodyTimeout))
	conn.remaining = 2*size + lineBytes // chunks may be small
	defer conn.SetReadDeadline(time.Time{})
	if request.header("transfer-encoding") != "" {
		return conn.readChunks(size, to)
	}
	_, err := io.CopyN(to, conn.in, size)
	return err
}

func (conn *connection) readChunks(most int64, to io.Writer) error {
	out := bufio.NewWriterSize(to, maxReadSize)
	for remaining := most; ; {
		line, err := conn.chunkLine()
		if err != nil {
			return err
		}
		word, _, _ := strings.Cut(line, ";")
		size, err := strconv.ParseUint(strings.TrimSpace(word), 16, 62)
		switch {
		case err != nil:
			return &httpError{400, "a chunk has no length"}
		case int64(size) > remaining:
			return tooLarge(most)
		case size == 0:
			for line != "" && err == nil { // skip trailers
				line, err = conn.chunkLine()
			}
			return errors.Join(err, out.Flush())
		}
		remaining -= int64(size)
		if _, err := io.CopyN(out, conn.in, int64(size)); err != nil {
			return err
		}
		if end, err := conn.chunkLine(); err != nil || end != "" {
			return &httpError{400, "a chunk has no end"}
		}
	}
}

// chunkLine reads a line between chunks; it may not exceed the connection's buffer.
func (conn *connection) chunkLine() (string, error) {
	line, err := conn.in.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		err = &httpError{400, "a line between chunks is too long"}
	}
	return strings.TrimRight(string(line), "\r\n"), err
}

// write sends an answer, without its body for HEAD.
func (conn *connection) write(request *httpRequest, status int, headers [][2]string, size int, body io.Reader) error {
	conn.SetWriteDeadline(time.Now().Add(bodyTimeout))
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

// linger lets a client that is still sending read its answer, instead of a broken connection.
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
