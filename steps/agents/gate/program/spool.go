package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// Bodies and answers lie in files without a name, one each: held in memory they would be most of what this program
// takes. Where no file can be made or written, a disk that is full for instance, a few of them are held in memory.

const (
	memoryBytes = 4 << 20
	blockBytes  = 64 << 10
	memoryFiles = 0x01021994 // TMPFS_MAGIC: a file there is memory, too
)

var errFull = errors.New("no room is left")

// Spools makes them.
type Spools struct {
	folder string
	memory *room
}

// newSpools keeps files in the program's own folder, which could be written once, or on a disk where that is none.
func newSpools(own string) *Spools {
	spools := &Spools{folder: own, memory: newRoom(memoryBytes)}
	for _, folder := range []string{own, "/var/tmp"} {
		stat := syscall.Statfs_t{}
		if syscall.Statfs(folder, &stat) != nil || stat.Type == memoryFiles {
			continue
		}
		if file, err := makeUnnamed(folder); err == nil {
			file.Close()
			spools.folder = folder
			break
		}
	}
	return spools
}

func makeUnnamed(folder string) (*os.File, error) {
	file, err := os.CreateTemp(folder, ".swe-argo-gate-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil && !errors.Is(err, os.ErrNotExist) {
		file.Close()
		return nil, err
	}
	return file, nil
}

// Spool is written to its end, and then read. Not safe for use by several.
type Spool struct {
	spools *Spools
	place  *room // what was taken of it is given back
	taken  int64
	size   int64
	file   *os.File
	blocks [][]byte // in place of the file
	failed error    // why there is none
}

// open has a spool for at most so many bytes, which were taken of place.
func (spools *Spools) open(place *room, taken int64) *Spool {
	return &Spool{spools: spools, place: place, taken: taken}
}

// Write fails with errFull where there is room neither in a file nor in memory.
func (spool *Spool) Write(data []byte) (int, error) {
	if spool.file == nil && spool.failed == nil {
		spool.file, spool.failed = makeUnnamed(spool.spools.folder)
	}
	if spool.failed == nil {
		if _, spool.failed = spool.file.Write(data); spool.failed == nil {
			spool.size += int64(len(data))
			return len(data), nil
		}
		if err := spool.leaveFile(); err != nil {
			return 0, err
		}
	}
	return len(data), spool.remember(data)
}

// leaveFile brings what is in the file into memory.
func (spool *Spool) leaveFile() error {
	written := io.NewSectionReader(spool.file, 0, spool.size)
	spool.size = 0
	defer func() {
		spool.file.Close()
		spool.file = nil
	}()
	for data := make([]byte, maxReadSize); ; {
		count, err := written.Read(data)
		if err == nil {
			err = spool.remember(data[:count])
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (spool *Spool) remember(data []byte) error {
	for len(data) > 0 {
		at := int(spool.size % blockBytes)
		if at == 0 {
			if !spool.spools.memory.tryTake(blockBytes) {
				return fmt.Errorf("%w: %w", errFull, spool.failed)
			}
			spool.blocks = append(spool.blocks, make([]byte, blockBytes))
		}
		count := copy(spool.blocks[len(spool.blocks)-1][at:], data)
		spool.size += int64(count)
		data = data[count:]
	}
	return nil
}

// ReadAt reads as io.ReaderAt has it.
func (spool *Spool) ReadAt(data []byte, at int64) (int, error) {
	if spool.file != nil {
		return spool.file.ReadAt(data, at)
	}
	total := 0
	for total < len(data) && at < spool.size {
		last := min(spool.size-at, int64(len(data)-total))
		count := copy(data[total:total+int(last)], spool.blocks[at/blockBytes][at%blockBytes:])
		total, at = total+count, at+int64(count)
	}
	if total < len(data) {
		return total, io.EOF
	}
	return total, nil
}

// fit gives back what was taken for nothing.
func (spool *Spool) fit() {
	spool.place.give(spool.taken - spool.size)
	spool.taken = spool.size
}

// Close gives back all.
func (spool *Spool) Close() {
	if spool.file != nil {
		spool.file.Close()
	}
	spool.spools.memory.give(int64(len(spool.blocks)) * blockBytes)
	spool.place.give(spool.taken)
	spool.file, spool.blocks, spool.taken, spool.size = nil, nil, 0, 0
}
