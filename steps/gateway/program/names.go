package main

import (
	"encoding/binary"
	"net"
	"strings"
)

const (
	headerBytes   = 12
	typeA         = 1
	noSuchName    = 3
	notSupported  = 4
	responseFlags = 0x8180 // a recursive answer
	answerSeconds = 5
)

// serveNames answers DNS questions for names that match a pattern with address, all others with "no such name".
func serveNames(address string, patterns []string) error {
	place := &net.UDPAddr{IP: net.ParseIP(address), Port: 53}
	socket, err := net.ListenUDP("udp", place)
	if err != nil {
		return err
	}
	go func() {
		buffer := make([]byte, 4096)
		for {
			count, from, err := socket.ReadFromUDP(buffer)
			if err != nil {
				return
			}
			if answer := answerQuestion(buffer[:count], place.IP.To4(), patterns); answer != nil {
				socket.WriteToUDP(answer, from)
			}
		}
	}()
	return nil
}

// answerQuestion returns nil for what is no question.
func answerQuestion(message []byte, address net.IP, patterns []string) []byte {
	if len(message) < headerBytes || message[2]&0x80 != 0 || binary.BigEndian.Uint16(message[4:]) != 1 {
		return nil
	}
	name, end := readName(message)
	if end == 0 || len(message) < end+4 {
		return nil
	}
	answer := append([]byte{}, message[:end+4]...)
	code, count := uint16(0), uint16(0)
	switch {
	case message[2]&0x78 != 0:
		code = notSupported
	case !matchesAny(name, patterns):
		code = noSuchName
	case binary.BigEndian.Uint16(message[end:]) == typeA:
		count = 1
		answer = append(answer, 0xc0, headerBytes, 0, typeA, 0, 1, 0, 0, 0, answerSeconds, 0, 4)
		answer = append(answer, address...)
	}
	binary.BigEndian.PutUint16(answer[2:], responseFlags|code)
	binary.BigEndian.PutUint16(answer[6:], count)
	binary.BigEndian.PutUint32(answer[8:], 0)
	return answer
}

// readName returns the question's name and where it ends, 0 if it is invalid.
func readName(message []byte) (string, int) {
	var labels []string
	for at := headerBytes; at < len(message); {
		size := int(message[at])
		if size == 0 {
			return strings.ToLower(strings.Join(labels, ".")), at + 1
		}
		if size > 63 || at+1+size > len(message) {
			return "", 0
		}
		labels = append(labels, string(message[at+1:at+1+size]))
		at += 1 + size
	}
	return "", 0
}

func matchesAny(name string, patterns []string) bool {
	for _, pattern := range patterns {
		if name == pattern || strings.HasPrefix(pattern, "*.") && strings.HasSuffix(name, pattern[1:]) {
			return true
		}
	}
	return false
}
