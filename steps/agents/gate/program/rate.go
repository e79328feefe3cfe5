package main

import (
	"sync"
	"time"
)

// bucket lets so many through a second, twice as many at once.
type bucket struct {
	mutex sync.Mutex
	most  float64
	left  float64
	seen  time.Time
}

func newBucket(aSecond float64) *bucket {
	return &bucket{most: aSecond, left: 2 * aSecond, seen: time.Now()}
}

func (bucket *bucket) take() bool {
	bucket.mutex.Lock()
	defer bucket.mutex.Unlock()
	now := time.Now()
	bucket.left = min(2*bucket.most, bucket.left+bucket.most*now.Sub(bucket.seen).Seconds())
	bucket.seen = now
	if bucket.left < 1 {
		return false
	}
	bucket.left--
	return true
}
