package metalog

import (
	"bytes"
	"encoding/hex"
	"os"
	"testing"

	"weir/internal/batch"
	"weir/internal/kraft"
	"weir/internal/uuid"
	"weir/internal/vfs"
	"weir/internal/vfs/memfs"
)

// What Apache Kafka 4.3.1 wrote: the first batch of a static quorum's log, of a
// dynamic one's, and, in testdata, 0-0.checkpoint and bootstrap.checkpoint of
// kafka-storage format --standalone -t 4L6g3nShT-eMCtK--X86sw (node 1, directory
// ODMeMQr_QxedXJzDBPjogQ, CONTROLLER://127.0.0.1:26602).
const (
	apacheStatic  = "00000000000000000000004f0000000102768fbb12002000000000000001a22a681d5a000001a22a681d5affffffffffffffffffffffffffff000000013a0000000800000002260000000000010200000001000200000001000000"
	apacheDynamic = "0000000000000000000000a2000000010257790cf7002000000002000001a22a682202000001a22a682202ffffffffffffffffffffffffffff000000033a00000008000000022600000000000102000000010002000000010000001e00000208000000050a000000010000820100000408000000066e0000020000000138331e310aff43179d5c9cc304f8e881020b434f4e54524f4c4c45520a3132372e302e302e3167ea000000000100000000"
)

func apacheVoters(t *testing.T) kraft.VoterSet {
	dir, err := uuid.Parse("ODMeMQr_QxedXJzDBPjogQ")
	if err != nil {
		t.Fatal(err)
	}
	set, err := kraft.NewVoterSet([]kraft.Voter{{Replica: kraft.Replica{ID: 1, Dir: dir}, MaxVersion: 1,
		Endpoints: []kraft.Endpoint{{Name: "CONTROLLER", Host: "127.0.0.1", Port: 26602}}}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestFirstBatchAsApache(t *testing.T) {
	set, one := apacheVoters(t), int16(1)
	for want, c := range map[string]kraft.ControlBatch{
		apacheStatic: {Epoch: 1, Leader: 1, Members: []kraft.Replica{{ID: 1}}, Granting: []kraft.Replica{{ID: 1}}},
		apacheDynamic: {Epoch: 1, Leader: 1, Members: []kraft.Replica{set.Voters()[0].Replica}, Granting: []kraft.Replica{set.Voters()[0].Replica},
			Version: &one, Voters: &set},
	} {
		raw, err := hex.DecodeString(want)
		if err != nil {
			t.Fatal(err)
		}
		b, _, err := batch.Next(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := controlBatch(&c, b.MaxTimestamp()); !bytes.Equal(got, raw) {
			t.Errorf("wrote\n%x, Apache Kafka\n%x", []byte(got), raw)
		}
	}
}

func TestFilesAsApache(t *testing.T) {
	voters, err := os.ReadFile("testdata/apache-4.3.1-dynamic-0-0.checkpoint")
	if err != nil {
		t.Fatal(err)
	}
	boot, err := os.ReadFile("testdata/apache-4.3.1-bootstrap.checkpoint")
	if err != nil {
		t.Fatal(err)
	}
	disk := memfs.New()
	if err := disk.MkdirAll("meta", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFileAtomic(disk, "meta/bootstrap.checkpoint", boot); err != nil {
		t.Fatal(err)
	}
	recs, err := ReadBootstrap(disk, "meta")
	if err != nil || len(recs) != 6 {
		t.Fatal(recs, err)
	}
	if err := vfs.WriteFileAtomic(disk, "meta/0-0", voters); err != nil {
		t.Fatal(err)
	}
	head, err := readFile(disk, "meta/0-0", -1, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Write them again: but for the time of writing, which stands in each batch, they are the same.
	if err := WriteBootstrap(disk, "meta", recs, 5); err != nil {
		t.Fatal(err)
	}
	sameBatches(t, disk, "meta/bootstrap.checkpoint", boot)
	if err := WriteVoters(disk, "meta", apacheVoters(t), head.timestampMs); err != nil {
		t.Fatal(err)
	}
	sameBatches(t, disk, "meta/"+PartitionDir+"/"+fileName(kraft.Position{}), voters)
}

// sameBatches compares all but CRC and timestamps.
func sameBatches(t *testing.T, fsys vfs.FS, name string, want []byte) {
	t.Helper()
	got, err := vfs.ReadFile(fsys, name)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%s: %d bytes, want %d: %v", name, len(got), len(want), err)
	}
	for len(got) > 0 {
		a, restA, err1 := batch.Next(got)
		b, restB, err2 := batch.Next(want)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		// crc at 17 (4 bytes), base and max timestamp at 27 (16 bytes)
		for _, x := range []batch.Batch{a, b} {
			clear(x[17:21])
			clear(x[27:43])
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s:\n%x, Apache Kafka\n%x", name, []byte(a), []byte(b))
		}
		got, want = restA, restB
	}
}
