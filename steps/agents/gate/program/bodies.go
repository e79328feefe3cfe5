package main

import (
	"bytes"
	"compress/flate"
)

// Body is a request's body as the difference from an earlier one: so many of its first and last bytes are that one's,
// what is between is compressed. A conversation is sent whole with every turn, so that without this what crosses grows
// with its square.
type Body struct {
	Size   int    `json:"size"`
	Base   int    `json:"base,omitempty"` // number of the request, 0 for none
	Prefix int    `json:"prefix,omitempty"`
	Suffix int    `json:"suffix,omitempty"`
	Data   []byte `json:"data"`
	Kept   []int  `json:"kept"` // requests to which later ones may refer, this one perhaps among them
}

const (
	keptBodies = 4
	keptBytes  = 3 << 20
)

type keptBody struct {
	number int
	data   []byte
}

// Bodies remembers the last ones. Not safe for use by several.
type Bodies struct {
	kept   []keptBody
	writer *flate.Writer
	buffer bytes.Buffer
}

func newBodies() *Bodies {
	writer, err := flate.NewWriter(nil, flate.BestSpeed)
	if err != nil {
		panic(err)
	}
	return &Bodies{writer: writer}
}

func (bodies *Bodies) pack(number int, data []byte) Body {
	body := Body{Size: len(data)}
	nearest := -1
	for at, each := range bodies.kept {
		prefix, suffix := shared(each.data, data)
		if prefix+suffix > body.Prefix+body.Suffix {
			body.Base, body.Prefix, body.Suffix, nearest = each.number, prefix, suffix, at
		}
	}
	bodies.buffer.Reset()
	bodies.writer.Reset(&bodies.buffer)
	bodies.writer.Write(data[body.Prefix : len(data)-body.Suffix])
	bodies.writer.Close()
	body.Data = bodies.buffer.Bytes()
	bodies.keep(number, data, body, nearest)
	return body
}

// What continues an earlier one takes its place, so that conversations beside each other all have one.
func (bodies *Bodies) keep(number int, data []byte, body Body, nearest int) {
	if len(data) <= keptBytes {
		if nearest >= 0 && 2*(body.Prefix+body.Suffix) > len(bodies.kept[nearest].data) {
			bodies.kept = append(bodies.kept[:nearest], bodies.kept[nearest+1:]...)
		}
		bodies.kept = append(bodies.kept, keptBody{number, data})
	}
	for len(bodies.kept) > keptBodies || bodies.size() > keptBytes {
		bodies.kept = bodies.kept[1:]
	}
}

func (bodies *Bodies) size() int {
	size := 0
	for _, each := range bodies.kept {
		size += len(each.data)
	}
	return size
}

func (bodies *Bodies) numbers() []int {
	numbers := []int{}
	for _, each := range bodies.kept {
		numbers = append(numbers, each.number)
	}
	return numbers
}

func shared(before, now []byte) (prefix, suffix int) {
	most := min(len(before), len(now))
	for prefix < most && before[prefix] == now[prefix] {
		prefix++
	}
	for suffix < most-prefix && before[len(before)-1-suffix] == now[len(now)-1-suffix] {
		suffix++
	}
	return prefix, suffix
}
