package main

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// What an agent may do beside asking is bounded, too: each bound ends it, and is told by its name.
const (
	overOutput  = "output"  // it printed more than output_bytes
	overHome    = "home"    // its HOME takes more than home_bytes of the disk
	overWaiting = "waiting" // for idle_s it neither asked, nor printed, nor computed
)

const (
	lookEvery  = time.Second
	walkShare  = 50 // of the time at most one part is spent walking through HOME
	idleLooks  = 20 // in idle_s
	idleShare  = 50 // who computes less than one part of idle_s does nothing
	entries    = 256
	clockTicks = 100 // a second, of the times in /proc: the same on all machines
)

// watch returns when the agent has ended.
func (agent *Agent) watch(config *Config, gate *Gate) {
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	walkAt, idle := time.Now(), newIdleness(config.IdleS, agent, gate)
	for {
		select {
		case <-agent.ended:
			return
		case now := <-ticks.C:
			if config.HomeBytes > 0 && config.Home != "" && now.After(walkAt) {
				if diskBytes(config.Home, config.HomeBytes) > config.HomeBytes {
					agent.end(overHome)
					return
				}
				walkAt = time.Now().Add(walkShare * time.Since(now))
			}
			if idle.isOver(now) {
				agent.end(overWaiting)
				return
			}
		}
	}
}

// idleness knows since when an agent does nothing.
type idleness struct {
	most     time.Duration
	agent    *Agent
	gate     *Gate
	since    time.Time
	asked    int
	printed  int64
	computed time.Duration // by then
	lookAt   time.Time
}

func newIdleness(most float64, agent *Agent, gate *Gate) *idleness {
	now := time.Now()
	return &idleness{most: time.Duration(most * float64(time.Second)), agent: agent, gate: gate, since: now, lookAt: now}
}

func (idle *idleness) isOver(now time.Time) bool {
	if idle.most <= 0 || now.Before(idle.lookAt) {
		return false
	}
	idle.lookAt = now.Add(idle.most / idleLooks)
	asked, waits := idle.gate.asked()
	printed, computed := idle.agent.printed(), computedBelow()
	if waits || asked != idle.asked || printed != idle.printed || computed-idle.computed > idle.most/idleShare {
		idle.since, idle.asked, idle.printed, idle.computed = now, asked, printed, computed
	}
	return now.Sub(idle.since) >= idle.most
}

// computedBelow is the processor time of all processes below this one, of those that have ended, too.
func computedBelow() time.Duration {
	usage := syscall.Rusage{}
	syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage)
	total := time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	for _, process := range descendants(os.Getpid()) {
		total += process.computed
	}
	return total
}

// diskBytes is what a folder takes of the disk, or some number above most. Of a file with several names each name
// counts for a part.
func diskBytes(folder string, most int64) int64 {
	open, err := os.Open(folder)
	if err != nil {
		return 0
	}
	folders, total := []string{}, int64(0)
	for err != io.EOF && total <= most {
		var some []os.DirEntry
		if some, err = open.ReadDir(entries); err != nil && err != io.EOF {
			break
		}
		for _, entry := range some {
			path := filepath.Join(folder, entry.Name())
			stat := syscall.Stat_t{}
			if syscall.Lstat(path, &stat) != nil {
				continue
			}
			if entry.IsDir() {
				folders = append(folders, path)
				total += stat.Blocks * 512
			} else {
				total += stat.Blocks * 512 / max(1, int64(stat.Nlink))
			}
		}
	}
	open.Close()
	for _, each := range folders {
		if total > most {
			break
		}
		total += diskBytes(each, most-total)
	}
	return total
}
