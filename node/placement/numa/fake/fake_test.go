package fake_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/node/placement/numa/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The files of a machine describe it.
func TestRead(t *testing.T) {
	for name, m := range map[string]fake.Machine{
		"zero":       {},
		"threads":    {Cores: 4, Threads: 2},
		"nodes":      {Nodes: 2, Cores: 8, Threads: 2, Memory: 64 << 30},
		"huge pages": {Nodes: 4, Cores: 2, HugePages: map[uint64]uint64{2 << 20: 100, 1 << 30: 0}},
	} {
		t.Run(name, func(t *testing.T) {
			want := m.Numa()
			got, err := numa.Read(m.FS())
			require.NoError(t, err)
			for i := range got.Nodes { // without huge pages, the kernel has no directory
				if len(got.Nodes[i].HugePages) == 0 {
					got.Nodes[i].HugePages = nil
				}
			}
			assert.Equal(t, want, got)
		})
	}
}

func Example() {
	m := fake.Machine{Nodes: 2, Cores: 2, Threads: 2, Memory: 16 << 30}.Numa()
	for _, c := range m.CPUs {
		fmt.Printf("CPU %d: core %d of node %d\n", c.ID, c.Core, c.Node)
	}
	fmt.Println(m.Nodes[1].Memory>>30, m.Nodes[1].Distances)
	// Output:
	// CPU 0: core 0 of node 0
	// CPU 1: core 1 of node 0
	// CPU 2: core 2 of node 1
	// CPU 3: core 3 of node 1
	// CPU 4: core 0 of node 0
	// CPU 5: core 1 of node 0
	// CPU 6: core 2 of node 1
	// CPU 7: core 3 of node 1
	// 16 [20 10]
}
