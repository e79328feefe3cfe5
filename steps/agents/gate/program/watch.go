package main

import (
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
	lookEvery   = time.Second
	walkShare   = 50 // of the time at most one part is spent walking through HOME
	idleLooks   = 20 // in idle_s
	idleShare   = 50 // who computes less than one part of idle_s does nothing
	entries     = 256
	heldFolders = 1024
	clockTicks  = 100 // a second, of the times in /proc: the same on all machines
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
	visitDescendants(os.Getpid(), func(each process) { total += each.computed })
	return total
}

// diskBytes is what a folder takes of the disk, or some number above most. Of a file with several names each name
// counts for a part. Of many folders only some are held at a time.
func diskBytes(folder string, most int64) int64 {
	open, err := os.Open(folder)
	if err != nil {
		return 0
	}
	defer open.Close()
	folders, total := []string{}, int64(0)
	for ended := false; !ended && total <= most; {
		some, _ := open.ReadDir(entries)
		for _, entry := range some {
			stat := syscall.Stat_t{}
			if syscall.Lstat(filepath.Join(folder, entry.Name()), &stat) != nil {
				continue
			}
			if entry.IsDir() {
				folders = append(folders, entry.Name())
				total += stat.Blocks * 512
			} else {
				total += stat.Blocks * 512 / max(1, int64(stat.Nlink))
			}
		}
		if ended = len(some) < entries; ended {
			open.Close() // a tree may be deeper than files may be open
		}
		if ended || len(folders) >= heldFolders {
			for _, name := range folders {
				if total <= most {
					total += diskBytes(filepath.Join(folder, name), most-total)
				}
			}
			folders = folders[:0]
		}
	}
	return total
}
