package pleg

import "time"

// pace decides how often to relist, from what is known of the event stream, and
// when the stream is to be given up. Without a stream it is the tight period; a
// stream whose word has been proven good makes it the safety period; a stream that
// has only been opened is believed more with each relist that finds nothing missed.
// It belongs to one goroutine.
type pace struct {
	tight, safety time.Duration
	maxMisses     int

	// period is from the end of a relist to the beginning of the next.
	period time.Duration
	// open says that there is a stream as far as is known, up that it has shown signs
	// of life. epoch counts the changes of both.
	open, up bool
	epoch    uint64
	// reconciled says that a relist has succeeded that began in this epoch: what
	// happened before the stream could tell it is known, so from now on the stream
	// answers for what relists find.
	reconciled bool
	// heard says that a hint has come since the last relist that was judged.
	heard bool
	// misses counts the relists since the last hit that found what the stream had not
	// told.
	misses int
	// deaf says that there was such a miss and the stream has told nothing true since:
	// relists stay tight. burnt says that there was one, and trust has to grow again.
	// Both outlive the connection, which may be as deaf when it is made anew.
	deaf, burnt bool
}

// opened notes that a new stream is being opened.
func (p *pace) opened() {
	p.open, p.up = true, false
	p.begin()
}

// proven notes that the stream is known to stand.
func (p *pace) proven() {
	p.up = true
	p.begin()
}

// broke notes that there is no stream any more.
func (p *pace) broke() {
	p.open, p.up = false, false
	p.begin()
}

// begin begins a new epoch.
func (p *pace) begin() {
	p.epoch++
	p.period = p.tight
	p.reconciled, p.heard = false, false
	p.misses = 0
}

// wide reports whether it may be long until the next relist.
func (p *pace) wide() bool { return p.period > p.tight }

// hit notes that a hint has led to a change that nobody knew of yet.
func (p *pace) hit() {
	p.misses = 0
	p.deaf = false
}

// relisted notes that a relist which began in the epoch has succeeded, and reports
// whether the stream has to answer for what it found.
func (p *pace) relisted(epoch uint64) (answers bool) {
	if !p.open || epoch != p.epoch {
		return false
	}
	if !p.reconciled {
		p.reconciled = true
		p.clean()
		return false
	}
	return true
}

// clean notes that the stream had told all that a relist found.
func (p *pace) clean() {
	p.heard = false
	switch {
	case p.deaf:
	case p.up && !p.burnt:
		p.period = p.safety
	default:
		p.period = min(2*p.period, p.safety)
		p.burnt = p.burnt && p.period < p.safety
	}
}

// missed notes that the stream had not told what a relist found, and reports whether
// it is to be given up: because it is silent, or has missed too much.
func (p *pace) missed() (giveUp bool) {
	silent := p.up && !p.heard
	p.heard = false
	p.misses++
	p.deaf, p.burnt = true, true
	p.period = p.tight
	return silent || p.misses > p.maxMisses
}
