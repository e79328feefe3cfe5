package main

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strconv"
)

// Answer is one line of stdin; its body is compressed.
type Answer struct {
	Number  int         `json:"number"`
	Status  int         `json:"status"`
	Headers [][2]string `json:"headers"`
	Size    int         `json:"size"`
	Body    []byte      `json:"body"`
}

// readAnswers returns when stdin ends.
func readAnswers(in *os.File, gate *Gate) {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		answer := &Answer{}
		if json.Unmarshal(line, answer) == nil {
			gate.answer(answer)
		}
	}
}

func (answer *Answer) write(w http.ResponseWriter) error {
	for _, pair := range answer.Headers {
		w.Header().Add(pair[0], pair[1])
	}
	if answer.Status < 100 || answer.Status > 999 {
		answer.Status = http.StatusBadGateway
	}
	w.Header().Set("Content-Length", strconv.Itoa(answer.Size))
	w.WriteHeader(answer.Status)
	if _, err := io.Copy(w, flate.NewReader(bytes.NewReader(answer.Body))); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}
