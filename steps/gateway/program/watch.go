package main

import (
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Names of the limits that end an agent.
const (
	overOutput  = "output"  // it printed more than output_bytes
	overHome    = "home"    // its HOME takes more than home_bytes of the disk
	overWaiting = "waiting" // for idle_s it sent no request, printed nothing and used little processor time
)

const (
	checkInterval     = time.Second
	walkShare         = 50 // at most 1/walkShare of the time is spent walking through HOME
	idleChecks        = 20 // in idle_s
	idleShare         = 50 // less processor time than idle_s/idleShare counts as idle
	entries           = 256
	maxPendingFolders = 1024
	clockTicks        = 100 // per second, in /proc on all Linux machines
)

// watch returns when the agent has ended.
func (agent *Agent) watch(config *Config, gateway *Gateway) {
	ticks := time.NewTicker(checkInterval)
	defer ticks.Stop()
	walkAt, idle := time.Now(), newIdleness(config.IdleS, agent, gateway)
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

// idleness tracks how long an agent has been idle.
type idleness struct {
	most     time.Duration
	agent    *Agent
	gateway  *Gateway
	since    time.Time
	requests int
	printed  int64
	computed time.Duration // by then
	checkAt  time.Time
}

func newIdleness(most float64, agent *Agent, gateway *Gateway) *idleness {
	now := time.Now()
	return &idleness{most: time.Duration(most * float64(time.Second)), agent: agent, gateway: gateway, since: now, checkAt: now}
}

func (idle *idleness) isOver(now time.Time) bool {
	if idle.most <= 0 || now.Before(idle.checkAt) {
		return false
	}
	idle.checkAt = now.Add(idle.most / idleChecks)
	requests, waits := idle.gateway.requestCount()
	printed, computed := idle.agent.printed(), computedBelow()
	if waits || requests != idle.requests || printed != idle.printed || computed-idle.computed > idle.most/idleShare {
		idle.since, idle.requests, idle.printed, idle.computed = now, requests, printed, computed
	}
	return now.Sub(idle.since) >= idle.most
}

// computedBelow returns the processor time of all processes below this one, including ended ones.
func computedBelow() time.Duration {
	usage := syscall.Rusage{}
	syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage)
	total := time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	visitDescendants(os.Getpid(), func(proc process) { total += proc.computed })
	return total
}

// diskBytes returns a folder's size on disk, or some number above most. A file with several hard links is divided among
// them. At most maxPendingFolders names are in memory per level.
func diskBytes(folder string, most int64) int64 {
	open, err := os.Open(folder)
	if err != nil {
		return 0
	}
	defer open.Close()
	folders, total := []string{}, int64(0)
	for isComplete := false; !isComplete && total <= most; {
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
		if isComplete = len(some) < entries; isComplete {
			open.Close() // a tree may be deeper than the limit of open files
		}
		if isComplete || len(folders) >= maxPendingFolders {
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
