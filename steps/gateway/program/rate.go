package main

import (
	"sync"
	"time"
)

// bucket is a rate limit per second that allows bursts of twice as many.
type bucket struct {
	mutex   sync.Mutex
	rate    float64
	tokens  float64
	updated time.Time
}

func newBucket(perSecond float64) *bucket {
	return &bucket{rate: perSecond, tokens: 2 * perSecond, updated: time.Now()}
}

func (bucket *bucket) allow() bool {
	bucket.mutex.Lock()
	defer bucket.mutex.Unlock()
	now := time.Now()
	bucket.tokens = min(2*bucket.rate, bucket.tokens+bucket.rate*now.Sub(bucket.updated).Seconds())
	bucket.updated = now
	if bucket.tokens < 1 {
		return false
	}
	bucket.tokens--
	return true
}
