// Gateway runs an agent's command in a sandbox without a network and prints its model requests as lines of JSON.
//
//	gateway CONFIG_FILE
//	gateway copy FOLDER TO     copies an agent's files out of their image (copy.go)
//	gateway egress CONFIG_FILE carries connections to allowed hosts (egress.go)
//
// It listens on 127.0.0.1, writes frames to stdout (frames.go) and reads answers from stdin (answers.go). It ends when
// the command ends, when stdin ends, or on SIGTERM, and ends all processes that the command started.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
)

// Config is the step's configuration; see steps/agents/gateway/frames.py.
type Config struct {
	Command string            `json:"command"`
	Folder  string            `json:"folder"`
	Home    string            `json:"home"`
	Env     map[string]string `json:"env"`
	Port    int               `json:"port"`
	Allowed []Allowed         `json:"allowed"`
	// Limits
	BodyBytes         int64   `json:"body_bytes"`
	HeaderBytes       int     `json:"header_bytes"`
	Headers           int     `json:"headers"`
	MaxConcurrent     int     `json:"max_concurrent"`
	RequestsPerSecond float64 `json:"requests_per_second"`
	PrintedBytes      int     `json:"printed_bytes"`
	OutputBytes       int64   `json:"output_bytes"` // 0 for no limit, as in the next two
	HomeBytes         int64   `json:"home_bytes"`
	IdleS             float64 `json:"idle_s"`
}

const wakePipeVariable = "SWE_ARGO_WAKE_PIPE"

func main() {
	// Without these, uncollected garbage and per-processor caches exceed the memory in use.
	debug.SetMemoryLimit(12 << 20)
	runtime.GOMAXPROCS(min(2, runtime.GOMAXPROCS(0)))
	if len(os.Args) == 4 && os.Args[1] == "copy" {
		if err := copyFiles(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 3 && os.Args[1] == "egress" {
		if err := runEgress(os.Args[2]); err != nil {
			fail(err)
		}
		return
	}
	if len(os.Args) != 2 {
		fail(fmt.Errorf("usage: gateway CONFIG_FILE"))
	}
	config, err := readConfig(os.Args[1])
	if err != nil {
		fail(err)
	}
	out := newFrameWriter(os.Stdout, os.Getenv(wakePipeVariable))
	os.Unsetenv(wakePipeVariable)
	gateway := newGateway(config, out, filepath.Dir(os.Args[1]))
	if err := gateway.listen(); err != nil {
		fail(err)
	}
	out.send(Frame{Listening: config.Port})
	signal.Notify(make(chan os.Signal, 1), syscall.SIGXFSZ) // reaching a file size limit is an error, not a crash
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		readAnswers(os.Stdin, gateway)
		stop <- syscall.SIGTERM
	}()
	agent, err := startAgent(config, out)
	if err != nil {
		out.send(Frame{Ended: &Ended{Failure: err.Error()}})
		return
	}
	go func() {
		<-stop
		agent.end("")
	}()
	go agent.watch(config, gateway)
	ended := agent.wait()
	ended.Refused = gateway.refusals()
	out.send(Frame{Ended: &ended})
}

// readConfig also removes the program and its configuration, because a sandbox's files may be compared later.
func readConfig(path string) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	os.Remove(path)
	os.Remove(os.Args[0])
	config := &Config{}
	if err := json.Unmarshal(text, config); err != nil {
		return nil, fmt.Errorf("invalid configuration: %w", err)
	}
	return config, nil
}

func fail(err error) {
	newFrameWriter(os.Stdout, "").send(Frame{Ended: &Ended{Failure: err.Error()}})
	time.Sleep(10 * time.Millisecond)
	os.Exit(1)
}
