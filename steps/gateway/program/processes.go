package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	killAll    = 20 * time.Second
	emptyScans = 3 // in a row: a single scan may miss changes
)

// process is an entry of /proc.
type process struct {
	pid      int
	parent   int
	state    byte
	computed time.Duration // processor time, including that of ended children
}

// killDescendants ends all processes below this one. It stops all of them first, because a stopped process cannot fork:
// this also ends processes that fork faster than they are killed.
func killDescendants() {
	until, empty := time.Now().Add(killAll), 0
	for signal := syscall.SIGSTOP; time.Now().Before(until); {
		alive, reached := 0, 0
		visitDescendants(os.Getpid(), func(proc process) {
			if proc.state == 'Z' || proc.state == 'X' {
				return
			}
			alive++
			if signal == syscall.SIGKILL || proc.state != 'T' {
				syscall.Kill(proc.pid, signal)
				reached++
			}
		})
		if empty++; alive > 0 {
			empty = 0
		}
		switch {
		case empty == emptyScans:
			return
		case signal == syscall.SIGKILL:
			time.Sleep(5 * time.Millisecond)
		case reached == 0 || time.Until(until) < killAll/2:
			signal = syscall.SIGKILL
		default:
			time.Sleep(time.Millisecond)
		}
	}
}

// visitDescendants calls visit with each process below root, including zombies, as soon as it is found: short-lived
// processes are gone by the end of a scan.
func visitDescendants(root int, visit func(process)) {
	folder, err := os.Open("/proc")
	if err != nil {
		return
	}
	defer folder.Close()
	names, _ := folder.Readdirnames(-1) // in the order of their numbers, so most parents come before their children
	below, read, unknown := map[int]bool{root: true}, map[int]bool{}, []process{}
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		if proc, ok := readProcess(name); ok {
			read[proc.pid] = true
			if below[proc.parent] {
				below[proc.pid] = true
				visit(proc)
			} else {
				unknown = append(unknown, proc)
			}
		}
	}
	for i, proc := range unknown {
		if !read[proc.parent] {
			// Its parent ended during the scan: read its new parent.
			if again, ok := readProcess(strconv.Itoa(proc.pid)); ok {
				unknown[i] = again
			}
		}
	}
	for before := 0; before < len(below); {
		before = len(below)
		for _, proc := range unknown {
			if below[proc.parent] && !below[proc.pid] {
				below[proc.pid] = true
				visit(proc)
			}
		}
	}
}

func readProcess(name string) (proc process, ok bool) {
	stat, err := os.ReadFile("/proc/" + name + "/stat")
	if err != nil {
		return proc, false
	}
	// The process name before the last parenthesis may contain anything.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 15 {
		return proc, false
	}
	proc.pid, _ = strconv.Atoi(name)
	proc.parent, err = strconv.Atoi(fields[1])
	proc.state = fields[0][0]
	for _, field := range fields[11:15] {
		ticks, _ := strconv.ParseInt(field, 10, 64)
		proc.computed += time.Duration(ticks) * time.Second / clockTicks
	}
	return proc, err == nil
}
