package main

import "sync"

// room is so many bytes of a disk or of memory.
type room struct {
	mutex sync.Mutex
	freed *sync.Cond
	left  int64
}

func newRoom(bytes int64) *room {
	room := &room{left: bytes}
	room.freed = sync.NewCond(&room.mutex)
	return room
}

// take waits until there is as much; more than there was at first never is.
func (room *room) take(bytes int64) {
	room.mutex.Lock()
	defer room.mutex.Unlock()
	for room.left < bytes {
		room.freed.Wait()
	}
	room.left -= bytes
}

// tryTake takes nothing where there is not as much.
func (room *room) tryTake(bytes int64) bool {
	room.mutex.Lock()
	defer room.mutex.Unlock()
	if room.left < bytes {
		return false
	}
	room.left -= bytes
	return true
}

func (room *room) give(bytes int64) {
	room.mutex.Lock()
	defer room.mutex.Unlock()
	room.left += bytes
	room.freed.Broadcast()
}
