package main

import (
	"bufio"
	"encoding/json"
	"os"
)

// Answer is one line of stdin; its body is compressed from so many bytes.
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
