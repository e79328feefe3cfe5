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
	killDelay    = time.Second // between SIGTERM and SIGKILL
	drainTimeout = 200 * time.Millisecond
	setReaper    = 36 // PR_SET_CHILD_SUBREAPER
	maxReadSize  = 32 << 10
)

// Agent is the running command.
type Agent struct {
	pid     int
	output  []*output
	ended   chan struct{}
	status  syscall.WaitStatus
	flooded sync.Once
	killing sync.Once
	killed  bool
	over    string // the limit that ended it; see watch.go
}

// startAgent runs the command in its own process group, in a session without a terminal and without input. Orphaned
// descendants become children of this process, so that they can be found.
func startAgent(config *Config, out *FrameWriter) (*Agent, error) {
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
	for _, stream := range agent.output {
		go stream.follow()
	}
	return agent, nil
}

// reap starts the command and waits for it and all adopted processes, in one thread: the kernel ends the command
// together with the thread that started it.
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
			time.Sleep(20 * time.Millisecond) // no child remains
			continue
		}
		if pid == agent.pid && (status.Exited() || status.Signaled()) {
			agent.status = status
			close(agent.ended)
		}
	}
}

// wait returns when the command and all its descendants have ended and all their output is sent.
func (agent *Agent) wait() Ended {
	<-agent.ended
	last := time.Now().Add(drainTimeout)
	for _, stream := range agent.output {
		stream.waitUntil(last)
	}
	killDescendants()
	for _, stream := range agent.output {
		stream.close()
	}
	code := agent.status.ExitStatus()
	if agent.status.Signaled() {
		code = 128 + int(agent.status.Signal())
	}
	return Ended{ExitCode: code, Killed: agent.killed, Over: agent.over}
}

func (agent *Agent) printed() int64 {
	count := int64(0)
	for _, stream := range agent.output {
		count += stream.count.Load()
	}
	return count
}

// end terminates the command, then kills it. over is the name of the exceeded limit, or empty.
func (agent *Agent) end(over string) {
	agent.killing.Do(func() {
		agent.killed, agent.over = over == "", over
		syscall.Kill(-agent.pid, syscall.SIGTERM)
		select {
		case <-agent.ended:
		case <-time.After(killDelay):
			killDescendants()
		}
	})
}
