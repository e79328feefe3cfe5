package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"time"
)

const (
	answersBytes   = 64 << 20 // of the disk
	answerPatience = 10 * time.Second
)

// Answer is one line of stdin and, behind it, the line of its body: so many letters of base64, compressed from so many
// bytes.
type Answer struct {
	Number  int         `json:"number"`
	Status  int         `json:"status"`
	Headers [][2]string `json:"headers"`
	Size    int         `json:"size"`
	Letters int64       `json:"letters"`
	body    *Spool      // compressed; none where there was no room for it
}

func (answer *Answer) close() {
	if answer.body != nil {
		answer.body.Close()
	}
}

// readAnswers returns when stdin ends.
func readAnswers(in *os.File, gate *Gate) {
	lines := bufio.NewReaderSize(in, maxReadSize)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		answer := &Answer{}
		if json.Unmarshal(line, answer) != nil {
			continue
		}
		letters := io.LimitReader(lines, answer.Letters)
		answer.body = gate.readAnswer(letters, int64(base64.StdEncoding.DecodedLen(int(answer.Letters))))
		if _, err := io.Copy(io.Discard, letters); err != nil {
			return
		}
		lines.ReadByte() // the line's end
		gate.answer(answer)
	}
}

// readAnswer waits a while for room, which the answers that are on their way to their clients give back.
func (gate *Gate) readAnswer(letters io.Reader, most int64) *Spool {
	if most > answersBytes {
		return nil
	}
	for until := time.Now().Add(answerPatience); !gate.answers.tryTake(most); time.Sleep(10 * time.Millisecond) {
		if !gate.giveUpOne() && time.Now().After(until) {
			return nil
		}
	}
	body := gate.spools.open(gate.answers, most)
	if _, err := io.Copy(body, base64.NewDecoder(base64.StdEncoding, letters)); err != nil {
		body.Close()
		return nil
	}
	body.fit()
	return body
}
