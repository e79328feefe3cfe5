// Gate runs an agent's command in a sandbox without a network and hands its model requests out, one JSON object a line.
//
//	gate CONFIG_FILE
//	gate copy FOLDER TO     brings an agent's files out of their image (copy.go)
//
// It listens on 127.0.0.1, prints what it has to tell on stdout (tell.go) and reads answers on stdin (answers.go). It
// ends with the command, and all that the command started ends with it; so it does when stdin ends, and on SIGTERM.
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

// Config is what the step's side decides; see steps/agents/gate/limits.py.
type Config struct {
	Command string            `json:"command"`
	Folder  string            `json:"folder"`
	Home    string            `json:"home"`
	Env     map[string]string `json:"env"`
	Port    int               `json:"port"`
	Allowed []Allowed         `json:"allowed"`
	// Limits
	BodyBytes    int64   `json:"body_bytes"`
	HeaderBytes  int     `json:"header_bytes"`
	Headers      int     `json:"headers"`
	AtATime      int     `json:"at_a_time"`
	ASecond      float64 `json:"a_second"`
	PrintedBytes int     `json:"printed_bytes"`
	OutputBytes  int64   `json:"output_bytes"` // 0 for any, as of the two below
	HomeBytes    int64   `json:"home_bytes"`
	IdleS        float64 `json:"idle_s"`
}

const bellVariable = "SWE_ARGO_BELL"

func main() {
	// What is collected late, and what each processor keeps for itself, is more than all that is in use.
	debug.SetMemoryLimit(12 << 20)
	runtime.GOMAXPROCS(min(2, runtime.GOMAXPROCS(0)))
	if len(os.Args) == 4 && os.Args[1] == "copy" {
		if err := copyFiles(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) != 2 {
		fail(fmt.Errorf("usage: gate CONFIG_FILE"))
	}
	config, err := readConfig(os.Args[1])
	if err != nil {
		fail(err)
	}
	out := newTeller(os.Stdout, os.Getenv(bellVariable))
	os.Unsetenv(bellVariable)
	gate := newGate(config, out, filepath.Dir(os.Args[1]))
	if err := gate.listen(); err != nil {
		fail(err)
	}
	out.tell(Told{Listening: config.Port})
	signal.Notify(make(chan os.Signal, 1), syscall.SIGXFSZ) // a file that may not grow is an error, not the end
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		readAnswers(os.Stdin, gate)
		stop <- syscall.SIGTERM
	}()
	agent, err := startAgent(config, out)
	if err != nil {
		out.tell(Told{Ended: &Ended{Failure: err.Error()}})
		return
	}
	go func() {
		<-stop
		agent.end("")
	}()
	go agent.watch(config, gate)
	ended := agent.wait()
	ended.Refused = gate.refusals()
	out.tell(Told{Ended: &ended})
}

// The program and its settings are gone once it runs: a sandbox' files may be compared with what they were.
func readConfig(path string) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	os.Remove(path)
	os.Remove(os.Args[0])
	config := &Config{}
	if err := json.Unmarshal(text, config); err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	return config, nil
}

func fail(err error) {
	newTeller(os.Stdout, "").tell(Told{Ended: &Ended{Failure: err.Error()}})
	time.Sleep(10 * time.Millisecond)
	os.Exit(1)
}
