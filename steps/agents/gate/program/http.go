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

// bodyRoom is how many bytes the body may have, by its head: a body in chunks as many as any.
func (request *httpRequest) bodyRoom(most int64) (int64, error) {
	if encoding := request.header("transfer-encoding"); encoding != "" {
		if !strings.EqualFold(encoding, "chunked") {
			return 0, &httpError{400, "a transfer encoding that is not known: " + encoding}
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
		return 0, &httpError{400, "a length that is no number"}
	case int64(size) > most:
		return 0, tooLarge(most)
	}
	return int64(size), nil
}

func tooLarge(most int64) error {
	return &httpError{413, fmt.Sprintf("the body has more than %d bytes", most)}
}

// readBody writes the body, for which there is as much room as bodyRoom said.
func (conn *connection) readBody(request *httpRequest, size int64, to io.Writer) error {
	if strings.EqualFold(request.header("expect"), "100-continue") {
		io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n")
	}
	conn.SetReadDeadline(time.Now().Add(bodyPatience))
	conn.left = 2*size + lineBytes // chunks may be small
	defer conn.SetReadDeadline(time.Time{})
	if request.header("transfer-encoding") != "" {
		return conn.readChunks(size, to)
	}
	_, err := io.CopyN(to, conn.in, size)
	return err
}

func (conn *connection) readChunks(most int64, to io.Writer) error {
	out := bufio.NewWriterSize(to, maxReadSize)
	for left := most; ; {
		line, err := conn.chunkLine()
		if err != nil {
			return err
		}
		word, _, _ := strings.Cut(line, ";")
		size, err := strconv.ParseUint(strings.TrimSpace(word), 16, 62)
		switch {
		case err != nil:
			return &httpError{400, "a chunk of no length"}
		case int64(size) > left:
			return tooLarge(most)
		case size == 0:
			for line != "" && err == nil { // what follows the last chunk is no part of the body
				line, err = conn.chunkLine()
			}
			return errors.Join(err, out.Flush())
		}
		left -= int64(size)
		if _, err := io.CopyN(out, conn.in, int64(size)); err != nil {
			return err
		}
		if end, err := conn.chunkLine(); err != nil || end != "" {
			return &httpError{400, "a chunk without its end"}
		}
	}
}

// chunkLine is a line between chunks; one that is longer than the connection's buffer is no such line.
func (conn *connection) chunkLine() (string, error) {
	line, err := conn.in.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		err = &httpError{400, "a line between chunks that is too long"}
	}
	return strings.TrimRight(string(line), "\r\n"), err
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
