// Package text checks and shortens texts that come from elsewhere: references of images ([ParseImageRef]), and texts
// of any length ([Clip]).
package text
