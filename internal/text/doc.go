// Package text checks and shortens texts that come from elsewhere: references of images ([ParseImageRef]), and texts
// and errors of any length ([Clip], [JoinErrors]).
package text
