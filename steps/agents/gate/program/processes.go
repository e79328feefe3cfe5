package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	killAll    = 5 * time.Second
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
		for _, each := range descendants(os.Getpid()) {
			if each.state == 'Z' || each.state == 'X' {
				continue
			}
			alive++
			if signal == syscall.SIGKILL || each.state != 'T' {
				syscall.Kill(each.pid, signal)
				reached++
			}
		}
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

// descendants are all processes below one, those that ended and are not waited for yet among them.
func descendants(root int) []process {
	processes := map[int]process{}
	folder, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer folder.Close()
	names, _ := folder.Readdirnames(-1)
	for _, name := range names {
		if name[0] >= '0' && name[0] <= '9' {
			if each, ok := readProcess(name); ok {
				processes[each.pid] = each
			}
		}
	}
	children := map[int][]process{}
	for pid, each := range processes {
		if _, there := processes[each.parent]; !there {
			// Its parent ended while this looked: who has it now is read once more.
			if again, ok := readProcess(strconv.Itoa(pid)); ok {
				each = again
			}
		}
		children[each.parent] = append(children[each.parent], each)
	}
	found := []process{}
	for next := children[root]; len(next) > 0; {
		found = append(found, next[0])
		next = append(next[1:], children[next[0].pid]...)
	}
	return found
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
