package main

import "sync"

// budget is an amount of bytes of a disk or of memory.
type budget struct {
	mutex sync.Mutex
	freed *sync.Cond
	free  int64
}

func newBudget(bytes int64) *budget {
	budget := &budget{free: bytes}
	budget.freed = sync.NewCond(&budget.mutex)
	return budget
}

// reserve waits until the bytes are free; it never returns for more than the whole budget.
func (budget *budget) reserve(bytes int64) {
	budget.mutex.Lock()
	defer budget.mutex.Unlock()
	for budget.free < bytes {
		budget.freed.Wait()
	}
	budget.free -= bytes
}

// tryReserve reserves the bytes if they are free.
func (budget *budget) tryReserve(bytes int64) bool {
	budget.mutex.Lock()
	defer budget.mutex.Unlock()
	if budget.free < bytes {
		return false
	}
	budget.free -= bytes
	return true
}

func (budget *budget) release(bytes int64) {
	budget.mutex.Lock()
	defer budget.mutex.Unlock()
	budget.free += bytes
	budget.freed.Broadcast()
}
