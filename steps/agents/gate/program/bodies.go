package main

import (
	"io"
	"slices"
)

// Body is a request's body as the difference from an earlier one: so many of its first and last bytes are that one's,
// what is between is compressed. A conversation is sent whole with every turn, so that without this what crosses grows
// with its square. Its last field, data, is written by the Teller.
type Body struct {
	Size    int64             `json:"size"`
	Base    int               `json:"base,omitempty"` // number of the request, 0 for none
	Prefix  int64             `json:"prefix,omitempty"`
	Suffix  int64             `json:"suffix,omitempty"`
	Kept    []int             `json:"kept"` // requests to which later ones may refer, this one perhaps among them
	between *io.SectionReader // data, once it is compressed
}

const (
	keptBodies = 4
	keptBytes  = 3 << 20
	pieceBytes = 32 << 10 // that are compared at a time
)

type keptBody struct {
	number int
	data   *Spool
}

// Bodies remembers the last ones. Not safe for use by several.
type Bodies struct {
	kept   []keptBody
	before [pieceBytes]byte
	now    [pieceBytes]byte
}

// pack has the difference of a body; it is remembered where Kept has its number, and is the caller's else.
func (bodies *Bodies) pack(number int, data *Spool) Body {
	body := Body{Size: data.size}
	nearest := -1
	for at, each := range bodies.kept {
		prefix, suffix := bodies.shared(each.data, data)
		if prefix+suffix > body.Prefix+body.Suffix {
			body.Base, body.Prefix, body.Suffix, nearest = each.number, prefix, suffix, at
		}
	}
	body.between = io.NewSectionReader(data, body.Prefix, data.size-body.Suffix-body.Prefix)
	bodies.keep(number, data, body, nearest)
	body.Kept = []int{}
	for _, each := range bodies.kept {
		body.Kept = append(body.Kept, each.number)
	}
	return body
}

// What continues an earlier one takes its place, so that conversations beside each other all have one. What had to be
// held in memory does not stay there.
func (bodies *Bodies) keep(number int, data *Spool, body Body, nearest int) {
	if data.size <= keptBytes && data.file != nil {
		if nearest >= 0 && 2*(body.Prefix+body.Suffix) > bodies.kept[nearest].data.size {
			bodies.drop(nearest)
		}
		bodies.kept = append(bodies.kept, keptBody{number, data})
	}
	for len(bodies.kept) > keptBodies || bodies.size() > keptBytes {
		bodies.drop(0)
	}
}

func (bodies *Bodies) drop(at int) {
	bodies.kept[at].data.Close()
	bodies.kept = slices.Delete(bodies.kept, at, at+1)
}

func (bodies *Bodies) size() int64 {
	size := int64(0)
	for _, each := range bodies.kept {
		size += each.data.size
	}
	return size
}

// shared counts the bytes that two begin with, and of the others those that both end with. What cannot be read of them
// is not shared.
func (bodies *Bodies) shared(before, now *Spool) (prefix, suffix int64) {
	most := min(before.size, now.size)
	for prefix < most {
		count := min(pieceBytes, most-prefix)
		old, new := bodies.pieces(before, prefix, now, prefix, count)
		at := 0
		for at < len(old) && old[at] == new[at] {
			at++
		}
		prefix += int64(at)
		if int64(at) < count {
			break
		}
	}
	for most -= prefix; suffix < most; {
		count := min(pieceBytes, most-suffix)
		old, new := bodies.pieces(before, before.size-suffix-count, now, now.size-suffix-count, count)
		at := len(old)
		for at > 0 && old[at-1] == new[at-1] {
			at--
		}
		suffix += int64(len(old) - at)
		if at > 0 || len(old) == 0 {
			break
		}
	}
	return prefix, suffix
}

// pieces are as long as each other, and empty where one of them cannot be read.
func (bodies *Bodies) pieces(before *Spool, beforeAt int64, now *Spool, nowAt, count int64) (old, new []byte) {
	old, new = bodies.before[:count], bodies.now[:count]
	_, failed := before.ReadAt(old, beforeAt)
	if _, err := now.ReadAt(new, nowAt); err != nil || failed != nil {
		return nil, nil
	}
	return old, new
}
