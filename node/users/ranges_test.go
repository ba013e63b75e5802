package users

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestNewRanges(t *testing.T) {
	for name, tc := range map[string]struct {
		pool    Range
		length  uint32
		size    int
		wantErr string
	}{
		"all IDs":                 {pool: Range{Unit, idSpace - Unit}, length: Unit, size: 65535},
		"subordinate IDs":         {pool: Range{2 * Unit, 110 * Unit}, length: Unit, size: 110},
		"longer ranges":           {pool: Range{4 * Unit, 8 * Unit}, length: 2 * Unit, size: 4},
		"no IDs for pods":         {pool: Range{Unit, Unit}, wantErr: "0 IDs for each pod are not a multiple of 65536"},
		"no multiple of the unit": {pool: Range{Unit, Unit}, length: 1000, wantErr: "1000 IDs for each pod are not a multiple"},
		"IDs of the host":         {pool: Range{0, 10 * Unit}, length: Unit, wantErr: "those of users of the host"},
		"below one length":        {pool: Range{Unit, 10 * Unit}, length: 2 * Unit, wantErr: "less than 131072"},
		"first ID between":        {pool: Range{100000, 10 * Unit}, length: Unit, wantErr: "100000, is not a multiple of 65536"},
		"length of the pool":      {pool: Range{Unit, 100000}, length: Unit, wantErr: "the length of the pool, 100000"},
		"empty pool":              {pool: Range{Unit, 0}, length: Unit, wantErr: "the length of the pool, 0"},
		"beyond the last ID":      {pool: Range{2 * Unit, idSpace - Unit}, length: Unit, wantErr: "has IDs above 4294967295"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := NewRanges(tc.pool, tc.length)
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.size, r.Size())
		})
	}
}

func smallPool(t require.TestingT) *Ranges {
	r, err := NewRanges(Range{Unit, 3 * Unit}, Unit)
	require.NoError(t, err)
	return r
}

func TestAllocate(t *testing.T) {
	r := smallPool(t)
	for i, owner := range []string{"a", "b", "c"} {
		own, err := r.Allocate(owner)
		require.NoError(t, err)
		assert.Equal(t, Range{uint32(i+1) * Unit, Unit}, own)
	}
	_, err := r.Allocate("d")
	require.ErrorIs(t, err, ErrExhausted)
	assert.EqualError(t, err, "no range of user IDs is free: all 3 of the pool 65536-262143 are in use")
	_, err = r.Allocate("a")
	require.EqualError(t, err, "pod a has the range 65536-131071")

	assert.True(t, r.Release("b"))
	assert.False(t, r.Release("b"))
	own, err := r.Allocate("d")
	require.NoError(t, err)
	assert.Equal(t, Range{2 * Unit, Unit}, own)
}

// A range that was returned is the last to be assigned again.
func TestReturnedRangesComeLast(t *testing.T) {
	r := smallPool(t)
	for _, want := range []uint32{1, 2, 3, 1} {
		own, err := r.Allocate("a")
		require.NoError(t, err)
		assert.Equal(t, want*Unit, own.First)
		r.Release("a")
	}
}

func TestRecord(t *testing.T) {
	for name, tc := range map[string]struct {
		own     Range
		wantErr string
		next    uint32 // the first ID of the next range
	}{
		"of the pool":            {own: Range{Unit, Unit}, next: 2 * Unit},
		"outside of it":          {own: Range{100 * Unit, Unit}, next: Unit},
		"of another length":      {own: Range{Unit, 2 * Unit}, next: 3 * Unit},
		"between the ranges":     {own: Range{Unit + 100, Unit}, next: 3 * Unit},
		"up to the last ID":      {own: Range{idSpace - Unit, Unit}, next: Unit},
		"of users of the host":   {own: Range{0, Unit}, wantErr: "the range 0-65535 has IDs below 65536"},
		"empty":                  {own: Range{Unit, 0}, wantErr: "the range has no IDs"},
		"beyond the last ID":     {own: Range{idSpace - Unit, 2 * Unit}, wantErr: "has IDs above 4294967295"},
		"of another pod":         {own: Range{10 * Unit, Unit}, wantErr: "the range 655360-720895 overlaps with 655360-720895 of pod other"},
		"in part of another pod": {own: Range{11*Unit - 1, Unit}, wantErr: "of pod other"},
		"of unknown processes":   {own: Range{20 * Unit, Unit}, next: Unit},
	} {
		t.Run(name, func(t *testing.T) {
			r := smallPool(t)
			require.NoError(t, r.Assign("other", Range{10 * Unit, Unit}))
			r.Reserve(Range{20 * Unit, Unit})
			err := r.Assign("pod", tc.own)
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			require.NoError(t, r.Assign("pod", tc.own), "again")
			require.ErrorContains(t, r.Assign("pod", Range{50 * Unit, Unit}), "already")
			own, ok := r.Of("pod")
			assert.True(t, ok)
			assert.Equal(t, tc.own, own)
			own, err = r.Allocate("next")
			require.NoError(t, err)
			assert.Equal(t, tc.next, own.First)
		})
	}
}

// disjoint asserts that no two used ranges overlap and that they are in order.
func disjoint(t require.TestingT, r *Ranges) {
	for i := 1; i < len(r.used); i++ {
		require.LessOrEqual(t, r.used[i-1].end(), uint64(r.used[i].First), "%v", r.used)
	}
	for _, c := range r.used {
		require.NotZero(t, c.Length)
	}
}

// Whatever is recorded, reserved, assigned and released: no two owners share an ID, nothing reserved is assigned, and a
// range is found if there is one.
func TestRangesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const pool = 6
		r, err := NewRanges(Range{2 * Unit, pool * 2 * Unit}, 2*Unit)
		require.NoError(t, err)
		owners := map[string]Range{}
		var reserved []Range // of which nobody is the owner
		overlapsOwner := func(own Range) bool {
			for _, o := range owners {
				if o.overlaps(own) {
					return true
				}
			}
			return false
		}
		name := rapid.StringMatching(`[a-h]`)
		drawn := rapid.Custom(func(t *rapid.T) Range {
			return Range{uint32(rapid.IntRange(1, 30).Draw(t, "half")) * Unit / 2,
				uint32(rapid.IntRange(1, 6).Draw(t, "length")) * Unit / 2}
		})
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { disjoint(t, r) },
			"allocate": func(t *rapid.T) {
				owner := name.Draw(t, "owner")
				own, err := r.Allocate(owner)
				if _, has := owners[owner]; has {
					require.Error(t, err)
					return
				}
				if err != nil {
					require.ErrorIs(t, err, ErrExhausted)
					for i := range pool {
						free := Range{uint32(i+1) * 2 * Unit, 2 * Unit}
						taken := overlapsOwner(free)
						for _, u := range reserved {
							taken = taken || u.overlaps(free)
						}
						require.Truef(t, taken, "%s is free", free)
					}
					return
				}
				require.False(t, overlapsOwner(own))
				for _, u := range reserved {
					require.Falsef(t, u.overlaps(own), "%s is reserved", u)
				}
				owners[owner] = own
			},
			"record": func(t *rapid.T) {
				owner, own := name.Draw(t, "owner"), drawn.Draw(t, "range")
				had, has := owners[owner]
				err := r.Assign(owner, own)
				if has {
					require.Equal(t, had == own && own.check() == nil, err == nil)
					return
				}
				require.Equal(t, own.check() == nil && !overlapsOwner(own), err == nil, "%v", err)
				if err == nil {
					owners[owner] = own
					var rest []Range
					for _, u := range reserved {
						rest = append(rest, without(u, own)...)
					}
					reserved = rest
				}
			},
			"reserve": func(t *rapid.T) {
				rest := []Range{drawn.Draw(t, "range")}
				r.Reserve(rest[0])
				for _, o := range owners {
					var next []Range
					for _, u := range rest {
						next = append(next, without(u, o)...)
					}
					rest = next
				}
				reserved = append(reserved, rest...)
			},
			"release": func(t *rapid.T) {
				owner := name.Draw(t, "owner")
				_, has := owners[owner]
				require.Equal(t, has, r.Release(owner))
				delete(owners, owner)
			},
		})
	})
}

// without returns the parts of a range that another one does not have.
func without(r, o Range) (out []Range) {
	if !r.overlaps(o) {
		return []Range{r}
	}
	if r.First < o.First {
		out = append(out, Range{r.First, o.First - r.First})
	}
	if r.end() > o.end() {
		out = append(out, Range{uint32(o.end()), uint32(r.end() - o.end())})
	}
	return out
}

func BenchmarkAllocate(b *testing.B) {
	r, err := NewRanges(Range{Unit, idSpace - Unit}, Unit)
	require.NoError(b, err)
	for i := range 1000 {
		_, err := r.Allocate(fmt.Sprint("pod", i))
		require.NoError(b, err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Allocate("one more"); err != nil {
			b.Fatal(err)
		}
		r.Release("one more")
	}
}
