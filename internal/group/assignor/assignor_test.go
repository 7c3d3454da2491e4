package assignor

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir/internal/uuid"
)

// golden is one group of testdata/golden.txt, replayed.
type golden struct {
	assignor string
	topics   map[string]uuid.UUID
	names    map[uuid.UUID]string
	sizes    map[uuid.UUID]int32
	members  map[string]*goldenMember
}

type goldenMember struct {
	instance *string
	topics   []string
	target   Assignment
}

// member does one "member" step and returns what the lines after it should be.
func (g *golden) member(t *testing.T, w []string) []string {
	id, homogeneous := w[1], w[len(w)-1] == "homogeneous"
	_, known := g.members[id]
	m := &goldenMember{}
	if known {
		m.target = g.members[id].target
	}
	if w[2] != "-" {
		m.instance = &w[2]
	}
	if len(w) == 5 {
		m.topics = strings.Split(w[3], ",")
	}
	g.members[id] = m
	ids := slices.Sorted(maps.Keys(g.members))
	if !known {
		ids = append(slices.DeleteFunc(ids, func(x string) bool { return x == id }), id)
	}
	var ms []Member
	for _, id := range ids {
		m := g.members[id]
		var topics []uuid.UUID
		for _, name := range Names(slices.Clone(m.topics)) {
			topics = append(topics, g.topics[name])
		}
		ms = append(ms, Member{ID: id, InstanceID: m.instance, Topics: Topics(topics, len(topics)), Had: m.target})
	}
	taken := map[topicPartition]bool{}
	for _, m := range ms {
		for _, x := range m.Had {
			for _, p := range x.Partitions {
				taken[topicPartition{x.Topic, p}] = true
			}
		}
	}
	got, err := Assign(g.assignor, &Group{
		Members: Members(ms, !known, 0), Homogeneous: homogeneous,
		Taken:      func(id uuid.UUID, p int32) bool { return taken[topicPartition{id, p}] },
		Partitions: func(id uuid.UUID) int32 { return g.sizes[id] },
	})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		g.members[id].target = Stored(got[id])
		lines = append(lines, g.line(id, got[id]))
	}
	return lines
}

func (g *golden) line(id string, a Assignment) string {
	var rows []string
	for _, x := range a {
		ps := slices.Clone(x.Partitions)
		slices.Sort(ps)
		text := strings.Trim(strings.ReplaceAll(fmt.Sprint(ps), " ", ","), "[]")
		rows = append(rows, " "+g.names[x.Topic]+":"+text)
	}
	slices.SortFunc(rows, func(a, b string) int {
		a, _, _ = strings.Cut(a, ":")
		b, _, _ = strings.Cut(b, ":")
		return strings.Compare(a, b)
	})
	return "  " + id + strings.Join(rows, "")
}

// TestGolden does to groups what testdata/Golden.java did to groups of Apache Kafka.
func TestGolden(t *testing.T) {
	f, err := os.Open("testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var g *golden
	var want []string
	n, groups := 0, 0
	for in := bufio.NewScanner(f); in.Scan(); {
		n++
		line := in.Text()
		if strings.HasPrefix(line, "  ") {
			if len(want) == 0 || want[0] != line {
				t.Fatalf("line %d: Apache Kafka assigns\n%s\nWeir\n%s", n, line, strings.Join(want, "\n"))
			}
			want = want[1:]
			continue
		}
		if len(want) > 0 {
			t.Fatalf("line %d: more members than in Apache Kafka: %q", n, want)
		}
		w := strings.Fields(line)
		switch w[0] {
		case "group":
			groups++
			g = &golden{assignor: w[1], topics: map[string]uuid.UUID{}, names: map[uuid.UUID]string{}, sizes: map[uuid.UUID]int32{}, members: map[string]*goldenMember{}}
		case "topic":
			id, err := uuid.Parse(w[2])
			if err != nil {
				t.Fatal(err)
			}
			size, err := strconv.Atoi(w[3])
			if err != nil {
				t.Fatal(err)
			}
			g.topics[w[1]], g.names[id], g.sizes[id] = id, w[1], int32(size)
		case "leave":
			delete(g.members, w[1])
		case "member":
			want = g.member(t, w)
		default:
			t.Fatalf("line %d: %q", n, line)
		}
	}
	if groups != 60 {
		t.Errorf("%d groups", groups)
	}
}
