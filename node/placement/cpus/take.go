package cpus

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/utils/cpuset"

	"github.com/kubeletkit/kubeletkit/node/placement/numa"
)

// Take returns n of the free CPUs, as the options require, so that they share as much as possible and the rest can
// serve others. It is a pure function, and takes what kubelet takes. It fails if not so many are free.
func Take(machine numa.Machine, free cpuset.CPUSet, n int, opts PolicyOptions) (cpuset.CPUSet, error) {
	return newLayout(machine).take(free, n, opts)
}

func (l *layout) take(free cpuset.CPUSet, n int, opts PolicyOptions) (cpuset.CPUSet, error) {
	p := newPicker(l, free, n)
	if p.total < n {
		return cpuset.New(), fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d", n,
			p.total)
	}
	if opts.DistributeNUMA {
		unit := 1
		if opts.FullPCPUsOnly {
			unit = l.perGroup(core)
		}
		if n%unit == 0 && p.distribute(unit, opts.AlignBySocket) {
			return p.taken(), nil
		}
		opts.PreferUncoreCache = false
	}
	p.pack(opts)
	return p.taken(), nil
}

// picker takes free CPUs until none is needed.
type picker struct {
	*layout
	// free are the CPUs that are free and not taken, by index; total is their number, and count that in each group.
	free  []bool
	total int
	count [levels][]int
	need  int
	picks []int
}

func newPicker(l *layout, free cpuset.CPUSet, need int) *picker {
	p := &picker{layout: l, free: make([]bool, len(l.cpus)), need: need}
	for lv := range levels {
		p.count[lv] = make([]int, len(l.groups[lv]))
	}
	for _, id := range free.UnsortedList() {
		if i, ok := l.index[id]; ok {
			p.set(i, true)
		}
	}
	return p
}

func (p *picker) set(i int, free bool) {
	change := 1
	if !free {
		change = -1
	}
	p.free[i] = free
	p.total += change
	for lv := range levels {
		p.count[lv][p.of[lv][i]] += change
	}
}

func (p *picker) pick(i int) {
	if p.free[i] && p.need > 0 {
		p.set(i, false)
		p.need--
		p.picks = append(p.picks, i)
	}
}

func (p *picker) taken() cpuset.CPUSet {
	ids := make([]int, len(p.picks))
	for k, i := range p.picks {
		ids[k] = p.cpus[i].ID
	}
	return cpuset.New(ids...)
}

// pack takes the CPUs in the largest whole groups that are not larger than what is needed, and the rest of groups that
// are used already.
func (p *picker) pack(opts PolicyOptions) {
	first, second := node, socket
	if p.socketsFirst {
		first, second = socket, node
	}
	p.takeWhole(first)
	p.takeWhole(second)
	if opts.PreferUncoreCache && p.need > 0 {
		p.takeByCache()
	}
	if !opts.DistributeCores {
		p.takeWhole(core)
	}
	for _, i := range p.singles(opts.DistributeCores) {
		p.pick(i)
	}
}

// sorted returns the groups of a level with free CPUs, those with the fewest first, in groups of a higher level in the
// given order: so what is used already is used up. outer is nil at the highest level.
func (p *picker) sorted(lv level, outer []int, outerLevel level) (out []int) {
	order := func(groups []int) {
		slices.SortFunc(groups,
			func(a, b int) int { return cmp.Or(cmp.Compare(p.count[lv][a], p.count[lv][b]), cmp.Compare(a, b)) })
	}
	if outer == nil {
		for g, n := range p.count[lv] {
			if n > 0 {
				out = append(out, g)
			}
		}
		order(out)
		return out
	}
	seen := make([]bool, len(p.groups[lv]))
	for _, o := range outer {
		from := len(out)
		for _, i := range p.groups[outerLevel][o].cpus {
			if g := p.of[lv][i]; p.free[i] && !seen[g] {
				seen[g] = true
				out = append(out, g)
			}
		}
		order(out[from:])
	}
	return out
}

func (p *picker) sortedNodes() []int {
	if p.socketsFirst {
		return p.sorted(node, p.sortedSockets(), socket)
	}
	return p.sorted(node, nil, 0)
}

func (p *picker) sortedSockets() []int {
	if p.socketsFirst {
		return p.sorted(socket, nil, 0)
	}
	return p.sorted(socket, p.sortedNodes(), node)
}

func (p *picker) sortedGroups(lv level) []int {
	switch lv {
	case node:
		return p.sortedNodes()
	case socket:
		return p.sortedSockets()
	case uncore:
		return p.sorted(uncore, p.sortedNodes(), node)
	}
	if p.socketsFirst {
		return p.sorted(core, p.sortedNodes(), node)
	}
	return p.sorted(core, p.sortedSockets(), socket)
}

// takeWhole takes groups all of whose CPUs are free, if so many are needed.
func (p *picker) takeWhole(lv level) {
	for _, g := range p.sortedGroups(lv) {
		if cpus := p.groups[lv][g].cpus; p.count[lv][g] == len(cpus) && p.need >= len(cpus) {
			for _, i := range cpus {
				p.pick(i)
			}
		}
	}
}

// takeByCache takes whole caches, and the rest in one cache, if one has so many free CPUs of cores in their order.
func (p *picker) takeByCache() {
	for _, g := range p.sortedGroups(uncore) {
		if p.need >= p.perGroup(uncore) {
			p.takeWhole(uncore)
		}
		if p.need == 0 {
			return
		}
		p.takePartOfCache(g)
		if p.need == 0 {
			return
		}
	}
}

func (p *picker) takePartOfCache(g int) {
	threads := p.perGroup(core)
	var cores []int
	for _, i := range p.groups[uncore][g].cpus {
		if c := p.of[core][i]; p.free[i] && !slices.Contains(cores, c) {
			cores = append(cores, c)
		}
	}
	slices.Sort(cores)
	cores = cores[:min(len(cores), (p.need+threads-1)/threads)]
	var cpus []int
	for _, i := range p.groups[uncore][g].cpus {
		if p.free[i] && slices.Contains(cores, p.of[core][i]) {
			cpus = append(cpus, i)
		}
	}
	if p.need%2 != 0 && threads > 1 && len(cpus) > p.need {
		cpus = cpus[:len(cpus)-1]
	}
	if len(cpus) == p.need {
		for _, i := range cpus {
			p.pick(i)
		}
	}
}

// singles returns the free CPUs in the order in which single ones are taken: those of cores that are used already
// first, or with spread those of each socket by their IDs, in which the second threads of cores usually come last.
func (p *picker) singles(spread bool) (out []int) {
	lv := core
	if spread {
		lv = socket
	}
	for _, g := range p.sortedGroups(lv) {
		for _, i := range p.groups[lv][g].cpus {
			if p.free[i] {
				out = append(out, i)
			}
		}
	}
	return out
}
