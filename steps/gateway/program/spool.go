package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// Bodies and answers are stored in unnamed files, because they would take most of this program's memory. If no file can
// be created or written, for example on a full disk, a few of them are held in memory.

const (
	memoryBytes = 4 << 20
	blockBytes  = 64 << 10
	memoryFiles = 0x01021994 // TMPFS_MAGIC: such files are in memory
)

var errFull = errors.New("no space is left")

// Spools creates spools.
type Spools struct {
	folder string
	memory *budget
}

// newSpools chooses the folder for files: the program's own, or /var/tmp if that one is in memory.
func newSpools(programFolder string) *Spools {
	spools := &Spools{folder: programFolder, memory: newBudget(memoryBytes)}
	for _, folder := range []string{programFolder, "/var/tmp"} {
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
	file, err := os.CreateTemp(folder, ".swe-argo-gateway-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil && !errors.Is(err, os.ErrNotExist) {
		file.Close()
		return nil, err
	}
	return file, nil
}

// Spool is a buffer that is written completely, then read. Not safe for concurrent use.
type Spool struct {
	spools   *Spools
	budget   *budget // from which the bytes are reserved
	reserved int64
	size     int64
	file     *os.File
	blocks   [][]byte // instead of the file
	failed   error    // why there is no file
}

// open returns a spool for bytes that the caller reserved from budget.
func (spools *Spools) open(budget *budget, reserved int64) *Spool {
	return &Spool{spools: spools, budget: budget, reserved: reserved}
}

// Write fails with errFull if neither the disk nor the memory has space.
func (spool *Spool) Write(data []byte) (int, error) {
	if spool.file == nil && spool.failed == nil {
		spool.file, spool.failed = makeUnnamed(spool.spools.folder)
	}
	if spool.failed == nil {
		if _, spool.failed = spool.file.Write(data); spool.failed == nil {
			spool.size += int64(len(data))
			return len(data), nil
		}
		if err := spool.moveToMemory(); err != nil {
			return 0, err
		}
	}
	return len(data), spool.writeMemory(data)
}

// moveToMemory moves the file's contents into memory.
func (spool *Spool) moveToMemory() error {
	written := io.NewSectionReader(spool.file, 0, spool.size)
	spool.size = 0
	defer func() {
		spool.file.Close()
		spool.file = nil
	}()
	for data := make([]byte, maxReadSize); ; {
		count, err := written.Read(data)
		if err == nil {
			err = spool.writeMemory(data[:count])
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (spool *Spool) writeMemory(data []byte) error {
	for len(data) > 0 {
		at := int(spool.size % blockBytes)
		if at == 0 {
			if !spool.spools.memory.tryReserve(blockBytes) {
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

// ReadAt implements io.ReaderAt.
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

// releaseUnused releases reserved bytes that were not written.
func (spool *Spool) releaseUnused() {
	spool.budget.release(spool.reserved - spool.size)
	spool.reserved = spool.size
}

// Close releases all bytes.
func (spool *Spool) Close() {
	if spool.file != nil {
		spool.file.Close()
	}
	spool.spools.memory.release(int64(len(spool.blocks)) * blockBytes)
	spool.budget.release(spool.reserved)
	spool.file, spool.blocks, spool.reserved, spool.size = nil, nil, 0, 0
}
