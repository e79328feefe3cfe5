package main

import (
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const (
	politeness  = time.Second // between the signal that can be refused and the one that cannot
	settle      = 200 * time.Millisecond
	setReaper   = 36 // PR_SET_CHILD_SUBREAPER
	maxReadSize = 32 << 10
)

// Agent is the command that runs.
type Agent struct {
	pid     int
	output  []*output
	ended   chan struct{}
	status  syscall.WaitStatus
	flooded sync.Once
	killing sync.Once
	killed  bool
	over    string // the bound that ended it; see watch.go
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
		agent.output = append(agent.output, newOutput(stream, read, config.PrintedBytes, out, func() {
			if config.OutputBytes > 0 && agent.printed() > config.OutputBytes {
				agent.flooded.Do(func() { go agent.end(overOutput) })
			}
		}))
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
	return Ended{ExitCode: code, Killed: agent.killed, Over: agent.over}
}

func (agent *Agent) printed() int64 {
	count := int64(0)
	for _, each := range agent.output {
		count += each.count.Load()
	}
	return count
}

// end asks the command to end, and sees to it; over names the bound that it went beyond, if it did.
func (agent *Agent) end(over string) {
	agent.killing.Do(func() {
		agent.killed, agent.over = over == "", over
		syscall.Kill(-agent.pid, syscall.SIGTERM)
		select {
		case <-agent.ended:
		case <-time.After(politeness):
			killDescendants()
		}
	})
}
