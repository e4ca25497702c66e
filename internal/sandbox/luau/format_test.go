package luau

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
)

// formatCases compares string.format with itself: what begins with %#o is not done
// by the host, so the interpreter's own makes the whole.
const formatCases = `
math.randomseed(%d)
local random = math.random
local function pick(t) return t[random(#t)] end
local function bits()
	local b = buffer.create(8)
	buffer.writeu32(b, 0, math.floor(random() * 4294967296))
	buffer.writeu32(b, 4, math.floor(random() * 4294967296))
	return buffer.readf64(b, 0)
end
local numbers = {
	function() return random(-10, 10) end,
	function() return math.floor((random() - 0.5) * 4294967296) end,
	function() return random(-1e6, 1e6) / 100 end,
	function() return random(-1e6, 1e6) / 8 end,
	function() return (random() - 0.5) * 10 ^ random(-30, 30) end,
	function() return 2 ^ random(-1074, 1023) end,
	function() return 10 ^ random(-30, 30) end,
	function() return random(0, 99999) + 0.5 end,
	bits,
	function() return pick({0, -0, 1, -1, 0.5, 2.5, 0.125, 255, 256, 1e15, 1e16, 1e20, 1e21, 1e22, 1e-5, 1e-6, 1e-7, 123456789012, 2^53, 2^63, -2^63, 2^64, 9.995, 0.0001, 99999.5, 999999.5, 1/0, -1/0, 0/0, 5e-324, 1.7976931348623157e308}) end,
}
local texts = {"", "a", "name", "with space", "n\0ul", "\255\254", "é", string.rep("x", 99), string.rep("y", 100), string.rep("z", 700), "%%d", "12", "1e3", "0x10"}
local others = {function() return nil end, function() return true end, function() return false end, function() return {} end}
local function value()
	local n = random(10)
	if n <= 7 then return pick(numbers)() end
	if n <= 9 then return pick(texts) end
	local v = pick(others)()
	return if type(v) == "table" and random(2) == 1 then setmetatable({}, {__tostring = function() return "own" end}) else v
end
local function directive()
	local s = "%%"
	for _ = 1, pick({0, 0, 0, 1, 1, 2, 5, 6}) do s ..= pick({"-", "+", " ", "0", "#", "-", "0"}) end
	if random(2) == 1 then s ..= pick({1, 2, 5, 8, 12, 30, 99, 100, ""}) end
	if random(3) == 1 then s ..= "." .. pick({"", 0, 1, 2, 3, 5, 10, 14, 17, 20, 40, 99, 100}) end
	if random(100) == 1 then return s .. pick({"q", "y", "a", "l", "%%", "", "\0"}) end
	return s .. pick({"d", "i", "u", "x", "X", "o", "e", "E", "f", "g", "G", "c", "s", "s", "d", "f", "g"})
end
local function item()
	local n = random(10)
	if n == 1 then return "%%*" elseif n == 2 then return pick({"%%d", "%%s", "%%.2f", "%%g"}) end
	return directive()
end
local wrong, done = {}, 0
for _ = 1, 2000 do
	local n = random(0, 4)
	local f, values = pick({"", "a", "%%%%", "\0", ","}), {}
	for i = 1, n do
		f ..= item() .. pick({"", ",", " %%%% ", "x\0y"})
		values[i] = value()
	end
	local mine, a = pcall(string.format, f, unpack(values, 1, n))
	local its, b = pcall(string.format, "%%#o" .. f, 8, unpack(values, 1, n))
	if its then
		b = string.sub(b, 4)
		done += 1
	end
	if mine ~= its or mine and a ~= b then
		wrong[#wrong + 1] = string.format("%%q of ", f)
		for i = 1, n do wrong[#wrong] ..= tostring(values[i]) .. ", " end
		wrong[#wrong] ..= ": " .. tostring(a) .. " not " .. tostring(b)
		if #wrong > 10 then break end
	end
end
for _, w in wrong do print(w) end
return done`

// TestFormat holds what the host makes of string.format against what the
// interpreter makes of it.
func TestFormat(t *testing.T) {
	e := engineFor(t)
	for seed := range 12 {
		out := run(t, e, fmt.Sprintf(formatCases, seed+1))
		if out.Err != nil {
			t.Fatal(out.Err)
		}
		var done int
		if _, err := fmt.Sscan(string(out.Result), &done); err != nil || done < 600 {
			t.Errorf("seed %d: %s formats came to something", seed+1, out.Result)
		}
		for _, line := range out.Logs {
			t.Errorf("seed %d: %s", seed+1, line)
		}
	}
}

// TestFormatErrors checks what no host may change: the message and the line.
func TestFormatErrors(t *testing.T) {
	e := engineFor(t)
	for _, c := range []struct{ source, want string }{
		{"\nreturn string.format('%d')", "script:2: missing argument #2"},
		{"\nreturn string.format('%d', 'x')", "script:2: invalid argument #2 to 'format' (number expected, got string)"},
		{"\n\nreturn string.format('%s', {}, nil, string.format('%y', 1))", "script:3: invalid option '%y' to 'format'"},
		{"return ('%100d'):format(1)", "script:1: invalid format (width or precision too long)"},
		{"return string.format()", "script:1: missing argument #1 to 'format' (string expected)"},
		{"return string.format(nil)", "script:1: invalid argument #1 to 'format' (string expected, got nil)"},
	} {
		out := run(t, e, c.source)
		if out.Err == nil || out.Err.Message != c.want {
			t.Errorf("%s\ngives %v, want %s", c.source, out.Err, c.want)
		}
	}
}

// TestAppendFloat holds the short way of a number with decimals against the long
// one.
func TestAppendFloat(t *testing.T) {
	check := func(n float64, precision int) {
		t.Helper()
		got, want := string(appendFloat(nil, n, 'f', precision)), strconv.FormatFloat(n, 'f', precision, 64)
		if got != want {
			t.Errorf("%%.%df of %b is %s, not %s", precision, n, got, want)
		}
	}
	// Numbers a bit below or above a half, whose product is one exactly.
	near := []float64{0, 0.5, 1.5, 2.5, 2.675, 1.005, 0.285, 1.115, 9.995, 0.125, 0.375, 1e15, 1 << 53, 1<<53 - 1, 5e-324, math.MaxFloat64, 90071992547409.92, 4503599627370497.5}
	for precision := range 9 {
		for _, n := range near {
			check(n, precision)
			check(math.Nextafter(n, 0), precision)
			check(math.Nextafter(n, math.Inf(1)), precision)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		precision := rng.IntN(9)
		check(float64(rng.IntN(1e9))/8, precision)
		check(float64(rng.IntN(1e7))/1000, precision)
		check(math.Ldexp(rng.Float64(), rng.IntN(120)-60), precision)
	}
}
