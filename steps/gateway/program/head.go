package main

import (
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"strings"
	"time"
)

// readHead reads a request without its body, of about the given number of bytes and at most that many headers.
func (conn *connection) readHead(bytes, most int) (*httpRequest, error) {
	conn.SetReadDeadline(time.Now().Add(headTimeout))
	conn.remaining = int64(bytes)
	lines := textproto.NewReader(conn.in)
	first, err := lines.ReadLine()
	if err == nil && first == "" { // some clients send an extra line after a body
		first, err = lines.ReadLine()
	}
	if err != nil {
		return nil, headError(err)
	}
	words := strings.SplitN(first, " ", 4)
	if len(words) != 3 || !strings.HasPrefix(words[2], "HTTP/1.") {
		return nil, &httpError{400, "not an HTTP/1.1 request"}
	}
	headers, err := readHeaders(lines, most)
	if err != nil {
		return nil, headError(err)
	}
	request := &httpRequest{method: words[0], path: words[1], headers: headers}
	request.last = words[2] == "HTTP/1.0" || strings.EqualFold(request.header("connection"), "close")
	return request, nil
}

// readHeaders returns the headers sorted by name. It stops at the first one above the limit, as each takes memory.
func readHeaders(lines *textproto.Reader, most int) ([][2]string, error) {
	headers := [][2]string{}
	for {
		line, err := lines.ReadContinuedLine()
		if err != nil {
			return nil, err
		}
		if line == "" {
			slices.SortStableFunc(headers, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
			return headers, nil
		}
		name, value, _ := strings.Cut(line, ":")
		if !isName(name) || strings.ContainsFunc(value, isControl) || len(name) == len(line) {
			return nil, &httpError{400, "the headers cannot be parsed"}
		}
		if len(headers) == most {
			return nil, &httpError{431, fmt.Sprintf("more than %d headers", most)}
		}
		headers = append(headers, [2]string{strings.ToLower(name), strings.TrimLeft(value, " \t")})
	}
}

// isName reports whether a text is a token of RFC 9110, section 5.6.2.
func isName(text string) bool {
	isOther := func(letter rune) bool {
		switch {
		case 'a' <= letter && letter <= 'z', 'A' <= letter && letter <= 'Z', '0' <= letter && letter <= '9':
			return false
		}
		return !strings.ContainsRune("!#$%&'*+-.^_`|~", letter)
	}
	return text != "" && !strings.ContainsFunc(text, isOther)
}

func isControl(letter rune) bool { return letter < ' ' && letter != '\t' || letter == 0x7f }

func headError(err error) error {
	if errors.Is(err, errTooMuch) {
		return &httpError{431, "the headers are too long"}
	}
	return err
}
