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
	answersBytes  = 64 << 20 // of the disk
	answerTimeout = 10 * time.Second
)

// Answer is a line of stdin, followed by a line with its body: Letters characters of base64, Size bytes when decompressed.
type Answer struct {
	Number  int         `json:"number"`
	Status  int         `json:"status"`
	Headers [][2]string `json:"headers"`
	Size    int         `json:"size"`
	Letters int64       `json:"letters"`
	body    *Spool      // compressed; nil if no space was free for it
}

func (answer *Answer) close() {
	if answer.body != nil {
		answer.body.Close()
	}
}

// readAnswers passes answers on until stdin ends.
func readAnswers(in *os.File, gateway *Gateway) {
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
		answer.body = gateway.readAnswer(letters, int64(base64.StdEncoding.DecodedLen(int(answer.Letters))))
		if _, err := io.Copy(io.Discard, letters); err != nil {
			return
		}
		lines.ReadByte() // the line's end
		gateway.answer(answer)
	}
}

// readAnswer waits up to answerTimeout for space, which other answers release once their clients have read them.
func (gateway *Gateway) readAnswer(letters io.Reader, most int64) *Spool {
	if most > answersBytes {
		return nil
	}
	for until := time.Now().Add(answerTimeout); !gateway.answerBudget.tryReserve(most); time.Sleep(10 * time.Millisecond) {
		if !gateway.evictOne() && time.Now().After(until) {
			return nil
		}
	}
	body := gateway.spools.open(gateway.answerBudget, most)
	if _, err := io.Copy(body, base64.NewDecoder(base64.StdEncoding, letters)); err != nil {
		body.Close()
		return nil
	}
	body.releaseUnused()
	return body
}
