package main

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	politeness  = time.Second // between the signal that can be refused and the one that cannot
	settle      = 200 * time.Millisecond
	killAll     = 5 * time.Second
	setReaper   = 36 // PR_SET_CHILD_SUBREAPER
	maxReadSize = 32 << 10
)

// Agent is the command that runs.
type Agent struct {
	pid     int
	output  []*output
	ended   chan struct{}
	status  syscall.WaitStatus
	killing sync.Once
	killed  bool
}

// startAgent runs the command in a process group of its own, in a session without a terminal, with nothing to read.
// What it leaves behind becomes this process' child, so that it is found.
func startAgent(config *Config, out *Teller) (*Agent, error) {
	syscall.RawSyscall(syscall.SYS_PRCTL, setReaper, 1, 0)
	agent := &Agent{ended: make(chan struct{})}
	command := exec.Command("/bin/bash", "-c", config.Command)
	command.Dir = config.Folder
	command.Env = os.Environ()
	for name, value := range config.Env {
		command.Env = append(command.Env, name+"="+value)
	}
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	files := []*os.File{}
	for _, stream := range []string{"stdout", "stderr"} {
		read, write, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		files = append(files, write)
		agent.output = append(agent.output, newOutput(stream, read, config.PrintedBytes, out))
	}
	command.Stdout, command.Stderr = files[0], files[1]
	started := make(chan error)
	go agent.reap(command, started)
	if err := <-started; err != nil {
		return nil, err
	}
	for _, file := range files {
		file.Close()
	}
	for _, each := range agent.output {
		go each.follow()
	}
	return agent, nil
}

// One thread starts the command and waits for it and for whatever else became ours: the kernel ends the command with
// the thread that started it.
func (agent *Agent) reap(command *exec.Cmd, started chan error) {
	runtime.LockOSThread()
	err := command.Start()
	if err == nil {
		agent.pid = command.Process.Pid
	}
	started <- err
	for err == nil {
		var status syscall.WaitStatus
		pid, failure := syscall.Wait4(-1, &status, 0, nil)
		if failure == syscall.EINTR {
			continue
		}
		if failure != nil {
			time.Sleep(20 * time.Millisecond) // none is left
			continue
		}
		if pid == agent.pid && (status.Exited() || status.Signaled()) {
			agent.status = status
			close(agent.ended)
		}
	}
}

// wait returns when the command and all that it started have ended, and all that it printed is told.
func (agent *Agent) wait() Ended {
	<-agent.ended
	last := time.Now().Add(settle)
	for _, each := range agent.output {
		each.waitUntil(last)
	}
	killDescendants()
	for _, each := range agent.output {
		each.close()
	}
	code := agent.status.ExitStatus()
	if agent.status.Signaled() {
		code = 128 + int(agent.status.Signal())
	}
	return Ended{ExitCode: code, Killed: agent.killed}
}

// end asks the command to end, and sees to it.
func (agent *Agent) end() {
	agent.killing.Do(func() {
		agent.killed = true
		syscall.Kill(-agent.pid, syscall.SIGTERM)
		select {
		case <-agent.ended:
		case <-time.After(politeness):
			killDescendants()
		}
	})
}

// killDescendants ends everything below this process; what forks meanwhile is found in the next round.
func killDescendants() {
	until := time.Now().Add(killAll)
	for time.Now().Before(until) {
		found := descendants(os.Getpid())
		if len(found) == 0 {
			return
		}
		for _, pid := range found {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func descendants(root int) []int {
	children := map[int][]int{}
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue
		}
		// The name before it may hold anything.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) < 2 || fields[0] == "Z" || fields[0] == "X" {
			continue
		}
		if parent, err := strconv.Atoi(fields[1]); err == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	found := []int{}
	for next := children[root]; len(next) > 0; {
		pid := next[0]
		found = append(found, pid)
		next = append(next[1:], children[pid]...)
	}
	return found
}
