package cpus

import (
	"math"
)

// distribute takes the CPUs evenly from as few memory nodes as possible, in units of so many CPUs (KEP-2902), and
// reports whether it could. Of as many nodes it takes those after which the free CPUs of all nodes are the most even;
// with bySocket, those of one socket if there are such, also if they give different numbers of CPUs.
func (p *picker) distribute(unit int, bySocket bool) bool {
	if p.need == 0 {
		return true
	}
	nodes := p.sortedNodes()
	units := (p.need + unit - 1) / unit
	allNodes := len(p.groups[node])
	unitsPerNode := ((len(p.cpus)-1)/unit)/allNodes + 1
	for k := (units-1)/unitsPerNode + 1; k <= min(units, len(nodes)); k++ {
		best, found := spread{balance: math.MaxFloat64}, false
		for nodes := range combinations(nodes, k) {
			if s, ok := p.spread(nodes, unit, bySocket); ok && s.better(best) {
				best, found = s, true
			}
			if best.balance == 0 && best.together == bySocket {
				break
			}
		}
		if !found {
			continue
		}
		for _, g := range best.nodes {
			p.packIn(g, best.each)
		}
		for rest := p.need; rest > 0; {
			for _, g := range best.more {
				if rest > 0 && p.count[node][g] >= unit {
					p.packIn(g, unit)
					rest -= unit
				}
			}
		}
		return true
	}
	return false
}

// spread is a choice of memory nodes.
type spread struct {
	// nodes are groups that give each as many CPUs; more are those of them that give one unit more, or more of them in
	// turn.
	nodes, more []int
	each        int
	// together means that all are of one socket, if that matters.
	together bool
	// balance is the standard deviation of the free CPUs of all nodes afterwards.
	balance float64
}

func (s spread) better(than spread) bool {
	if s.together != than.together {
		return s.together
	}
	return s.balance < than.balance
}

// spread returns how the nodes serve the need, if they can.
func (p *picker) spread(nodes []int, unit int, bySocket bool) (s spread, ok bool) {
	s = spread{nodes: nodes, each: p.need / len(nodes) / unit * unit, balance: math.MaxFloat64}
	total := 0
	for _, g := range nodes {
		units := p.count[node][g] / unit * unit
		total += units
		if bySocket {
			s.each = min(s.each, units)
		}
	}
	s.together = bySocket && p.ofOneSocket(nodes)
	if total < p.need {
		return s, false
	}
	left := map[int]int{}
	for g, n := range p.count[node] {
		if n > 0 {
			left[g] = n
		}
	}
	var candidates []int
	for _, g := range nodes {
		if left[g] -= s.each; left[g] < 0 {
			return s, false
		}
		if left[g] >= unit {
			candidates = append(candidates, g)
		}
	}
	rest := p.need - s.each*len(nodes)
	if rest == 0 {
		s.balance = deviation(left)
		return s, true
	}
	for k := len(candidates); k >= 1; k-- {
		for more := range combinations(candidates, k) {
			after, rest := make(map[int]int, len(left)), rest
			for g, n := range left {
				after[g] = n
			}
			for took := true; rest > 0 && took; {
				took = false
				for _, g := range more {
					if rest > 0 && after[g] >= unit {
						after[g] -= unit
						rest -= unit
						took = true
					}
				}
			}
			if balance := deviation(after); rest == 0 && balance < s.balance {
				s.balance, s.more = balance, more
			}
		}
	}
	return s, s.more != nil
}

// ofOneSocket reports whether all CPUs of the nodes are in one socket.
func (p *picker) ofOneSocket(nodes []int) bool {
	first := p.of[socket][p.groups[node][nodes[0]].cpus[0]]
	for _, g := range nodes {
		for _, i := range p.groups[node][g].cpus {
			if p.of[socket][i] != first {
				return false
			}
		}
	}
	return true
}

// packIn takes n CPUs of one node.
func (p *picker) packIn(g, n int) {
	part := &picker{layout: p.layout, free: make([]bool, len(p.cpus)), need: n}
	for lv := range levels {
		part.count[lv] = make([]int, len(p.groups[lv]))
	}
	for _, i := range p.groups[node][g].cpus {
		if p.free[i] {
			part.set(i, true)
		}
	}
	part.pack(PolicyOptions{})
	for _, i := range part.picks {
		p.pick(i)
	}
}

// combinations yields the subsets of k of the list, in the order of the list.
func combinations(list []int, k int) func(yield func([]int) bool) {
	return func(yield func([]int) bool) {
		chosen := make([]int, 0, k)
		var choose func(from int) bool
		choose = func(from int) bool {
			if len(chosen) == k {
				return yield(append([]int(nil), chosen...))
			}
			for i := from; i <= len(list)-(k-len(chosen)); i++ {
				chosen = append(chosen, list[i])
				if !choose(i + 1) {
					return false
				}
				chosen = chosen[:len(chosen)-1]
			}
			return true
		}
		choose(0)
	}
}

// deviation returns the standard deviation, with three digits after the point as in kubelet, so that equal ones are
// equal.
func deviation(of map[int]int) float64 {
	round := func(x float64) float64 { return math.Round(x*1000) / 1000 }
	sum := 0
	for _, n := range of {
		sum += n
	}
	mean, squares := round(float64(sum)/float64(len(of))), 0.0
	for _, n := range of {
		squares += (float64(n) - mean) * (float64(n) - mean)
	}
	return round(math.Sqrt(squares / float64(len(of))))
}
