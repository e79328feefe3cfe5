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
	emptyLooks = 3 // in a row: one look may miss what changes while it lasts
)

// process is one of /proc.
type process struct {
	pid      int
	parent   int
	state    byte
	computed time.Duration // its own processor time, and that of its children that have ended
}

// killDescendants ends everything below this process. All are stopped first: what is stopped cannot fork, so that even
// what forks faster than it is killed comes to its end.
func killDescendants() {
	until, empty := time.Now().Add(killAll), 0
	for signal := syscall.SIGSTOP; time.Now().Before(until); {
		alive, reached := 0, 0
		visitDescendants(os.Getpid(), func(each process) {
			if each.state == 'Z' || each.state == 'X' {
				return
			}
			alive++
			if signal == syscall.SIGKILL || each.state != 'T' {
				syscall.Kill(each.pid, signal)
				reached++
			}
		})
		if empty++; alive > 0 {
			empty = 0
		}
		switch {
		case empty == emptyLooks:
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

// visitDescendants calls visit with each process below one, those that ended and are not waited for yet among them, as
// soon as it is known: what forks and ends at once is gone by the time that all have been looked at.
func visitDescendants(root int, visit func(process)) {
	folder, err := os.Open("/proc")
	if err != nil {
		return
	}
	defer folder.Close()
	names, _ := folder.Readdirnames(-1) // in the order of their numbers, so most parents come before their children
	below, read, others := map[int]bool{root: true}, map[int]bool{}, []process{}
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		if each, ok := readProcess(name); ok {
			read[each.pid] = true
			if below[each.parent] {
				below[each.pid] = true
				visit(each)
			} else {
				others = append(others, each)
			}
		}
	}
	for i, each := range others {
		if !read[each.parent] {
			// Its parent ended while this looked: who has it now is read once more.
			if again, ok := readProcess(strconv.Itoa(each.pid)); ok {
				others[i] = again
			}
		}
	}
	for known := 0; known < len(below); {
		known = len(below)
		for _, each := range others {
			if below[each.parent] && !below[each.pid] {
				below[each.pid] = true
				visit(each)
			}
		}
	}
}

func readProcess(name string) (found process, ok bool) {
	stat, err := os.ReadFile("/proc/" + name + "/stat")
	if err != nil {
		return found, false
	}
	// The name before it may hold anything.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 15 {
		return found, false
	}
	found.pid, _ = strconv.Atoi(name)
	found.parent, err = strconv.Atoi(fields[1])
	found.state = fields[0][0]
	for _, field := range fields[11:15] {
		ticks, _ := strconv.ParseInt(field, 10, 64)
		found.computed += time.Duration(ticks) * time.Second / clockTicks
	}
	return found, err == nil
}
