package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
)

const (
	egressWindow = 256 << 10 // bytes of a connection on their way to the step
	egressPiece  = 32 << 10
	egressMost   = 128 // connections at a time
	resolvConf   = "/etc/resolv.conf"
)

// Egress carries connections of a sandbox without a network to the step, which decides about them; see steps/sandbox/egress.
// Nothing here is trusted: it only gives clients an address to connect to.
type Egress struct {
	mutex       sync.Mutex
	connections map[int]*carried
	last        int
	out         *FrameWriter
}

// Carry is a line in either direction: part of a connection.
type Carry struct {
	Connection int    `json:"connection"`
	Open       string `json:"open,omitempty"` // proxy, tls or http: the listener that accepted it
	Data       []byte `json:"data,omitempty"`
	Credit     int    `json:"credit,omitempty"` // bytes that the other side has passed on
	End        bool   `json:"end,omitempty"`    // no more data in this direction
	Reset      bool   `json:"reset,omitempty"`
}

// EgressConfig is written by the step. Names are patterns that its resolver answers.
type EgressConfig struct {
	Address   string   `json:"address"`
	ProxyPort int      `json:"proxy_port"`
	Names     []string `json:"names"`
}

type carried struct {
	number int
	client *net.TCPConn
	input  chan []byte
	room   atomic.Int64  // bytes that may still be sent to the step
	credit chan struct{} // room has grown
	ended  chan struct{}
	once   sync.Once
}

func (connection *carried) close() {
	connection.once.Do(func() { close(connection.ended); connection.client.Close() })
}

func runEgress(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	os.Remove(path)
	os.Remove(os.Args[0])
	config := &EgressConfig{}
	if err := json.Unmarshal(text, config); err != nil {
		return err
	}
	egress := &Egress{connections: map[int]*carried{}, out: newFrameWriter(os.Stdout, os.Getenv(wakePipeVariable))}
	os.Unsetenv(wakePipeVariable)
	proxy, err := net.Listen("tcp", net.JoinHostPort(config.Address, strconv.Itoa(config.ProxyPort)))
	if err != nil {
		return err
	}
	go egress.accept(proxy, "proxy")
	// Clients that know no proxy: their names resolve to this address. It takes the rights of root, as in most sandboxes.
	restore := egress.listenForNames(config)
	egress.out.send(Frame{Listening: config.ProxyPort})
	egress.readCarries(os.Stdin)
	restore()
	return nil
}

func (egress *Egress) listenForNames(config *EgressConfig) func() {
	var listeners []net.Listener
	for port, kind := range map[string]string{"443": "tls", "80": "http"} {
		listener, err := net.Listen("tcp", net.JoinHostPort(config.Address, port))
		if err != nil {
			continue
		}
		listeners = append(listeners, listener)
		go egress.accept(listener, kind)
	}
	if len(listeners) < 2 || serveNames(config.Address, config.Names) != nil {
		return func() {}
	}
	return useResolver(config.Address)
}

// useResolver names the own resolver in resolv.conf and returns what puts the old one back.
func useResolver(address string) func() {
	old, err := os.ReadFile(resolvConf)
	if os.WriteFile(resolvConf, []byte("nameserver "+address+"\n"), 0o644) != nil {
		return func() {}
	}
	return func() {
		if err != nil {
			os.Remove(resolvConf)
		} else {
			os.WriteFile(resolvConf, old, 0o644)
		}
	}
}

func (egress *Egress) accept(listener net.Listener, kind string) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		egress.mutex.Lock()
		if len(egress.connections) >= egressMost {
			egress.mutex.Unlock()
			client.Close()
			continue
		}
		egress.last++
		connection := &carried{number: egress.last, client: client.(*net.TCPConn), input: make(chan []byte, 4096),
			credit: make(chan struct{}, 1), ended: make(chan struct{})}
		connection.room.Store(egressWindow)
		egress.connections[connection.number] = connection
		egress.out.carry(Carry{Connection: connection.number, Open: kind}) // in the order of the numbers
		egress.mutex.Unlock()
		go egress.carry(connection)
	}
}

// carry copies both directions, and forgets the connection when both have ended.
func (egress *Egress) carry(connection *carried) {
	done := make(chan struct{})
	go func() { egress.write(connection); close(done) }()
	egress.read(connection)
	<-done
	connection.close()
	egress.mutex.Lock()
	delete(egress.connections, connection.number)
	egress.mutex.Unlock()
}

// read sends what the client sends, at most a window ahead of the step.
func (egress *Egress) read(connection *carried) {
	buffer := make([]byte, egressPiece)
	for {
		for connection.room.Load() < egressPiece {
			select {
			case <-connection.credit:
			case <-connection.ended:
				return
			}
		}
		count, err := connection.client.Read(buffer)
		if count > 0 {
			connection.room.Add(-int64(count))
			egress.out.carry(Carry{Connection: connection.number, Data: buffer[:count]})
		}
		if err == io.EOF {
			egress.out.carry(Carry{Connection: connection.number, End: true})
			return
		}
		if err != nil {
			egress.out.carry(Carry{Connection: connection.number, Reset: true})
			connection.close()
			return
		}
	}
}

// write passes the step's data on to the client and reports how much.
func (egress *Egress) write(connection *carried) {
	for {
		select {
		case data := <-connection.input:
			if data == nil {
				connection.client.CloseWrite()
				return
			}
			if _, err := connection.client.Write(data); err != nil {
				egress.out.carry(Carry{Connection: connection.number, Reset: true})
				connection.close()
				return
			}
			egress.out.carry(Carry{Connection: connection.number, Credit: len(data)})
		case <-connection.ended:
			return
		}
	}
}

func (egress *Egress) readCarries(in io.Reader) {
	lines := bufio.NewReaderSize(in, egressPiece)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		carry := Carry{}
		if json.Unmarshal(line, &carry) != nil {
			continue
		}
		egress.mutex.Lock()
		connection := egress.connections[carry.Connection]
		egress.mutex.Unlock()
		if connection == nil {
			continue
		}
		if carry.Reset {
			connection.client.SetLinger(0)
			connection.close()
			continue
		}
		if carry.Credit > 0 {
			connection.room.Add(int64(carry.Credit))
			select {
			case connection.credit <- struct{}{}:
			default:
			}
		}
		if len(carry.Data) > 0 {
			connection.put(carry.Data)
		}
		if carry.End {
			connection.put(nil)
		}
	}
}

func (connection *carried) put(data []byte) {
	select {
	case connection.input <- data:
	case <-connection.ended: // its client is gone, and nothing reads input
	}
}

func (writer *FrameWriter) carry(carry Carry) {
	line, err := json.Marshal(carry)
	if err != nil {
		panic(fmt.Sprint("a carry is not JSON: ", err))
	}
	writer.mutex.Lock()
	defer writer.mutex.Unlock()
	writer.out.Write(line)
	writer.endLine()
	writer.wake()
}
