package broker

import (
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"weir/internal/config"
	"weir/internal/image"
)

// TestListenersChange: listeners and listener.security.protocol.map open and close listeners of clients while the node
// runs. What cannot be opened is left out; the others are not touched.
func TestListenersChange(t *testing.T) {
	n := newNode(t, time.Now())
	n.listens()
	first := n.clients.Addr("PLAINTEXT").String()
	open, err := net.Dial("tcp", first)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	set := func(key, value string) { n.replay(setting(image.ResourceBroker, "1", key, &value)) }
	have := func(what string, want ...string) {
		t.Helper()
		if got := n.clients.Listeners(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
		if got := n.asks(open, 20*time.Second); got != "served" || n.clients.Addr("PLAINTEXT").String() != first {
			t.Errorf("%s: a connection to the listener that stays is %s", what, got)
		}
		if _, err := open.Read(make([]byte, 512)); err != nil { // the rest of the answer
			t.Error(err)
		}
	}
	const own = "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
	const extra = ",EXTRA://127.0.0.1:0"
	set("listeners", own+extra)
	have("without a protocol", "PLAINTEXT")
	set("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTRA:PLAINTEXT,TWO:PLAINTEXT,SAFE:SSL")
	have("with a protocol", "EXTRA", "PLAINTEXT")
	second, err := net.Dial("tcp", n.clients.Addr("EXTRA").String())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if got := n.asks(second, 20*time.Second); got != "served" {
		t.Errorf("a connection to the new listener is %s", got)
	}

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ",TWO://127.0.0.1:" + strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	set("listeners", own+extra+port)
	have("a taken port", "EXTRA", "PLAINTEXT")
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	set("log.cleaner.threads", "1")
	have("the port is free at the next change", "EXTRA", "PLAINTEXT", "TWO")

	set("listeners", own+port)
	have("removed", "PLAINTEXT", "TWO")
	if err := second.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for range 100 { // what was answered before comes first
		if _, err = second.Read(make([]byte, 512)); err != nil {
			break
		}
	}
	if timeout, ok := err.(net.Error); err == nil || ok && timeout.Timeout() {
		t.Errorf("a connection to the removed listener stays open: %v", err)
	}
	set("listeners", own+extra)
	have("one goes, one is back", "EXTRA", "PLAINTEXT")
	n.replay(setting(image.ResourceBroker, "1", "listeners", nil))
	have("taken away", "PLAINTEXT")
}

// TestRefusedListeners: the words of Apache Kafka 4.3.1 for changes of the listeners.
func TestRefusedListeners(t *testing.T) {
	const file = "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@h:1\n" +
		"listeners=PLAINTEXT://127.0.0.1:25091,CONTROLLER://127.0.0.1:25191\n" +
		"listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
	const ct, kept, all = ",CONTROLLER://127.0.0.1:25191", "PLAINTEXT://127.0.0.1:25091", "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT,TWO:PLAINTEXT"
	const two = kept + ct + ",EXTRA://127.0.0.1:25401,TWO://127.0.0.1:25402"
	const shown = "[PLAINTEXT://127.0.0.1:25091, CONTROLLER://127.0.0.1:25191, EXTRA://127.0.0.1:25401, TWO://127.0.0.1:25402]"
	const reconfigured, creating = "Invalid value org.apache.kafka.common.config.ConfigException: ", "Error creating broker listeners from '"
	const after = " for configuration Invalid dynamic configuration"
	for _, x := range []struct{ file, listeners, protocols, want string }{
		{"", kept + ct, all, reconfigured + "Advertised listeners 'Set(ListenerName(PLAINTEXT), ListenerName(EXTRA), ListenerName(TWO))' must be a subset of listeners 'Set(ListenerName(PLAINTEXT), ListenerName(CONTROLLER))'" + after},
		{"advertised.listeners=" + kept, kept + ct, all, ""},
		{"", ct[1:], all, "requirement failed: There must be at least one broker advertised listener. Perhaps all listeners appear in controller.listener.names?"},
		{"", kept, all, "requirement failed: controller.listener.names must contain at least one value appearing in the 'listeners' configuration when running the KRaft controller role"},
		{"", kept + ct + ",EXTRA://127.0.0.1:25091", all, creating + "[PLAINTEXT://127.0.0.1:25091, CONTROLLER://127.0.0.1:25191, EXTRA://127.0.0.1:25091]': If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, listeners: [PLAINTEXT://127.0.0.1:25091, CONTROLLER://127.0.0.1:25191, EXTRA://127.0.0.1:25091], port: 25091"},
		{"", two + ",NOMAP://127.0.0.1:25403", all, creating + shown[:len(shown)-1] + ", NOMAP://127.0.0.1:25403]': No security protocol defined for listener NOMAP"},
		{"", "PLAINTEXT//127.0.0.1:25091", all, creating + "[PLAINTEXT//127.0.0.1:25091]': Unable to parse PLAINTEXT//127.0.0.1:25091 to a broker endpoint"},
		{"", two, "CONTROLLER:PLAINTEXT,EXTRA:PLAINTEXT", creating + shown + "': No security protocol defined for listener PLAINTEXT"},
		{"", two, "CONTROLLER:PLAINTEXT,PLAINTEXT:NONE", "Invalid security protocol `NONE` defined in listener.security.protocol.map"},
		{"", two + ",THREE://:25403", all + ",THREE:PLAINTEXT", ""},
	} {
		static, _, err := config.Load("server.properties", []byte(file+x.file), nil)
		if err != nil {
			t.Fatal(err)
		}
		now := config.NewEffective(static, nil, map[string]string{"listeners": two, "listener.security.protocol.map": all})
		got := ""
		if err := now.ValidateOwn(map[string]string{"listeners": x.listeners, "listener.security.protocol.map": x.protocols}, true); err != nil {
			got = err.Error()
		}
		if got != x.want {
			t.Errorf("listeners=%s map=%s\n got %s\nwant %s", x.listeners, x.protocols, got, x.want)
		}
	}
}
