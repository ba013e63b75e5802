package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// The drawing, in pixels.
const (
	width, height = 760.0, 360.0
	left, right   = 60.0, 170.0 // the labels of the axis; the legend
	top, bottom   = 58.0, 44.0
)

// The picture brings its own background, because whoever shows it may be dark where the
// reader's system is light.
const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" role="img">
<title>%s</title>
<style>
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600; font-size: 14px }
.axis { fill: #59636e }
.grid { stroke: #d1d9e0 }
.back { fill: #ffffff }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.axis { fill: #9198a1 }
.grid { stroke: #3d444d }
.back { fill: #0d1117 }
}
</style>
<rect class="back" width="100%%" height="100%%"/>
`

// svg draws the lines.
func (c chart) svg(lines []line) []byte {
	numbers := pods(lines)
	most := float64(numbers[len(numbers)-1])
	y := c.scale(lines)
	px := func(n float64) float64 { return left + n/most*(width-left-right) }
	py := func(v float64) float64 { return height - bottom - y.share(v)*(height-top-bottom) }

	var b bytes.Buffer
	fmt.Fprintf(&b, head, width, height, width, height, escape(c.title))
	fmt.Fprintf(&b, `<text class="title" x="%g" y="22">%s</text>`+"\n", left, escape(c.title))
	fmt.Fprintf(&b, `<text class="axis" x="%g" y="42">%s</text>`+"\n", left, escape(c.axis))
	for _, tick := range y.ticks {
		at := pixel(py(tick))
		fmt.Fprintf(&b, `<line class="grid" x1="%g" x2="%g" y1="%s" y2="%s"/>`+"\n", left, width-right, at, at)
		fmt.Fprintf(&b, `<text class="axis" x="%g" y="%s" text-anchor="end" dy="4">%s</text>`+"\n",
			left-8, at, number(tick))
	}
	for _, n := range numbers {
		fmt.Fprintf(&b, `<text class="axis" x="%s" y="%g" text-anchor="middle">%d</text>`+"\n", pixel(px(float64(n))),
			height-bottom+18, n)
	}
	fmt.Fprintf(&b, `<text class="axis" x="%s" y="%g" text-anchor="middle">pods</text>`+"\n",
		pixel((left+width-right)/2), height-bottom+36)

	for i, l := range lines {
		dash := ""
		if l.dashed {
			dash = ` stroke-dasharray="6 4"`
		}
		fmt.Fprintf(&b, `<g stroke="%s" fill="%s">`+"\n", l.colour, l.colour)
		// Bars of several contenders at one number of pods stand side by side.
		aside := 5 * (float64(i) - float64(len(lines)-1)/2)
		var path []string
		for _, p := range l.points {
			x := px(float64(p.pods))
			path = append(path, pixel(x)+","+pixel(py(p.value)))
			if p.low < p.value || p.high > p.value {
				at := pixel(x + aside)
				fmt.Fprintf(&b, `<line x1="%s" x2="%s" y1="%s" y2="%s" stroke-width="1.5" stroke-opacity="0.6"/>`+"\n",
					at, at, pixel(py(p.low)), pixel(py(p.high)))
			}
			fmt.Fprintf(&b, `<circle cx="%s" cy="%s" r="3.5" stroke="none"/>`+"\n", pixel(x), pixel(py(p.value)))
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke-width="2"%s/>`+"\n", strings.Join(path, " "), dash)
		at := top + 8 + 22*float64(i)
		fmt.Fprintf(&b, `<line x1="%g" x2="%g" y1="%g" y2="%g" stroke-width="2"%s/>`+"\n", width-right+16,
			width-right+40, at, at, dash)
		b.WriteString("</g>\n")
		fmt.Fprintf(&b, `<text x="%g" y="%g" dy="4">%s</text>`+"\n", width-right+46, at, escape(l.label))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// scale is the vertical axis: its ticks, and how far up a value is, from 0 to 1.
type scale struct {
	ticks []float64
	share func(value float64) float64
}

// scale begins at 0, or at a power of ten if it is logarithmic, and ends at a round
// number above all values.
func (c chart) scale(lines []line) scale {
	least, most := math.Inf(1), 0.0
	for _, l := range lines {
		for _, p := range l.points {
			least, most = min(least, p.low), max(most, p.high)
		}
	}
	if c.logarithmic {
		from := math.Floor(math.Log10(least))
		to := max(math.Ceil(math.Log10(most)), from+1)
		s := scale{share: func(v float64) float64 { return (math.Log10(v) - from) / (to - from) }}
		for e := from; e <= to; e++ {
			s.ticks = append(s.ticks, math.Pow(10, e))
		}
		return s
	}
	if most <= 0 {
		most = 1
	}
	step := math.Pow(10, math.Floor(math.Log10(most/5)))
	for _, times := range []float64{1, 2, 5, 10} {
		if most/(step*times) <= 6 {
			step *= times
			break
		}
	}
	steps := math.Ceil(most / step)
	s := scale{share: func(v float64) float64 { return v / (steps * step) }}
	for i := range int(steps) + 1 {
		s.ticks = append(s.ticks, float64(i)*step)
	}
	return s
}

// pixel is a coordinate with one decimal, so that rounding in the last bit does not show.
func pixel(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

// number is a tick without what rounding has left of a sum of steps.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

func escape(text string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(text)) // a strings.Builder has no errors
	return b.String()
}
