package main

import (
	"io"
	"slices"
)

// Body is a request's body as the difference from an earlier one: Prefix first and Suffix last bytes are equal, and the
// bytes between are compressed. Every turn sends the whole conversation, so full bodies would grow with its square. The
// last field, data, is written by the FrameWriter.
type Body struct {
	Size    int64             `json:"size"`
	Base    int               `json:"base,omitempty"` // number of the request, 0 for none
	Prefix  int64             `json:"prefix,omitempty"`
	Suffix  int64             `json:"suffix,omitempty"`
	Kept    []int             `json:"kept"` // requests that later ones may refer to; may include this one
	between *io.SectionReader // becomes data when compressed
}

const (
	maxStoredBodies = 4
	maxStoredBytes  = 3 << 20
	pieceBytes      = 32 << 10 // compared at a time
)

type storedBody struct {
	number int
	data   *Spool
}

// Bodies stores the latest bodies. Not safe for concurrent use.
type Bodies struct {
	stored []storedBody
	before [pieceBytes]byte
	now    [pieceBytes]byte
}

// pack returns the difference of a body. If Kept contains its number, the body is stored; else the caller closes it.
func (bodies *Bodies) pack(number int, data *Spool) Body {
	body := Body{Size: data.size}
	nearest := -1
	for at, earlier := range bodies.stored {
		prefix, suffix := bodies.shared(earlier.data, data)
		if prefix+suffix > body.Prefix+body.Suffix {
			body.Base, body.Prefix, body.Suffix, nearest = earlier.number, prefix, suffix, at
		}
	}
	body.between = io.NewSectionReader(data, body.Prefix, data.size-body.Suffix-body.Prefix)
	bodies.keep(number, data, body, nearest)
	body.Kept = []int{}
	for _, earlier := range bodies.stored {
		body.Kept = append(body.Kept, earlier.number)
	}
	return body
}

// keep stores a body. A body that continues an earlier one replaces it, so that parallel conversations all keep one.
// Bodies that had to be held in memory are not stored.
func (bodies *Bodies) keep(number int, data *Spool, body Body, nearest int) {
	if data.size <= maxStoredBytes && data.file != nil {
		if nearest >= 0 && 2*(body.Prefix+body.Suffix) > bodies.stored[nearest].data.size {
			bodies.drop(nearest)
		}
		bodies.stored = append(bodies.stored, storedBody{number, data})
	}
	for len(bodies.stored) > maxStoredBodies || bodies.size() > maxStoredBytes {
		bodies.drop(0)
	}
}

func (bodies *Bodies) drop(at int) {
	bodies.stored[at].data.Close()
	bodies.stored = slices.Delete(bodies.stored, at, at+1)
}

func (bodies *Bodies) size() int64 {
	size := int64(0)
	for _, earlier := range bodies.stored {
		size += earlier.data.size
	}
	return size
}

// shared counts the equal bytes at the start of two bodies, and at the end of the rest. Unreadable bytes are not equal.
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

// pieces returns two pieces of equal length; both are empty if one cannot be read.
func (bodies *Bodies) pieces(before *Spool, beforeAt int64, now *Spool, nowAt, count int64) (old, new []byte) {
	old, new = bodies.before[:count], bodies.now[:count]
	_, failed := before.ReadAt(old, beforeAt)
	if _, err := now.ReadAt(new, nowAt); err != nil || failed != nil {
		return nil, nil
	}
	return old, new
}
