"""The place of a node on the map: a point in its region, or the place that its owner stated.

Nothing is derived from addresses. The point within the region depends only on the node's id. So it does not move, and
reveals nothing about where in its region the node is.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

UNKNOWN = "place not stated"
#: Stated places are rounded to one decimal, about eleven kilometres.
STATED_STEP = 0.1
_FORM = "a place is LATITUDE,LONGITUDE in degrees, such as 52.5,13.4"

#: Code, latitude, longitude, spread of nodes in degrees, name: ISO 3166 countries (by a point well inside), the price regions
#: `eu` and `uk`, continents, and the usual cloud regions of large countries.
_TABLE = """
ad 42.5 1.6 0.1 Andorra
ae 24.0 54.0 0.8 United Arab Emirates
af 33.8 66.0 2.5 Afghanistan
ag 17.1 -61.8 0.1 Antigua and Barbuda
al 41.1 20.1 0.5 Albania
am 40.3 45.0 0.5 Armenia
ao -12.3 17.5 3.0 Angola
ar -34.6 -64.5 4.0 Argentina
at 47.6 14.1 0.8 Austria
au -25.5 134.5 8.0 Australia
az 40.4 47.8 0.7 Azerbaijan
ba 44.2 17.8 0.7 Bosnia and Herzegovina
bb 13.2 -59.5 0.1 Barbados
bd 23.8 90.3 1.0 Bangladesh
be 50.6 4.6 0.5 Belgium
bf 12.3 -1.7 1.5 Burkina Faso
bg 42.7 25.3 0.8 Bulgaria
bh 26.1 50.5 0.1 Bahrain
bi -3.4 29.9 0.4 Burundi
bj 9.6 2.3 0.7 Benin
bn 4.5 114.7 0.2 Brunei
bo -16.7 -64.7 2.5 Bolivia
br -10.8 -53.0 8.0 Brazil
bs 24.3 -76.6 0.5 Bahamas
bt 27.4 90.4 0.4 Bhutan
bw -22.2 23.8 1.8 Botswana
by 53.5 28.0 1.2 Belarus
bz 17.2 -88.7 0.3 Belize
ca 56.0 -100.0 9.0 Canada
cd -2.9 23.7 4.0 Congo (Kinshasa)
cf 6.6 20.5 2.0 Central African Republic
cg -0.8 15.2 1.5 Congo (Brazzaville)
ch 46.8 8.2 0.6 Switzerland
ci 7.6 -5.6 1.3 Ivory Coast
cl -35.0 -71.3 1.0 Chile
cm 5.7 12.7 1.5 Cameroon
cn 35.0 103.5 7.0 China
co 3.9 -73.1 2.5 Colombia
cr 9.9 -84.1 0.5 Costa Rica
cu 21.6 -79.0 0.7 Cuba
cv 15.1 -23.6 0.2 Cape Verde
cy 35.0 33.2 0.2 Cyprus
cz 49.8 15.3 0.7 Czechia
de 51.1 10.3 1.8 Germany
dj 11.7 42.6 0.3 Djibouti
dk 56.0 9.3 0.6 Denmark
dm 15.4 -61.4 0.1 Dominica
do 18.9 -70.5 0.5 Dominican Republic
dz 28.2 2.6 4.0 Algeria
ec -1.4 -78.4 0.9 Ecuador
ee 58.7 25.8 0.5 Estonia
eg 26.8 30.0 2.5 Egypt
er 15.4 38.8 0.6 Eritrea
es 40.2 -3.6 1.8 Spain
et 8.6 39.6 2.5 Ethiopia
fi 63.5 26.3 1.8 Finland
fj -17.8 178.0 0.3 Fiji
fr 46.6 2.5 1.9 France
ga -0.6 11.8 1.0 Gabon
gb 52.8 -1.6 1.2 United Kingdom
gd 12.1 -61.7 0.1 Grenada
ge 42.2 43.5 0.6 Georgia
gh 7.9 -1.2 1.1 Ghana
gl 72.0 -41.0 4.0 Greenland
gm 13.4 -15.4 0.3 Gambia
gn 10.4 -10.9 1.0 Guinea
gq 1.7 10.3 0.3 Equatorial Guinea
gr 39.3 22.4 0.8 Greece
gt 15.7 -90.4 0.7 Guatemala
gw 12.0 -14.9 0.4 Guinea-Bissau
gy 4.8 -58.9 1.0 Guyana
hk 22.4 114.1 0.1 Hong Kong
hn 14.8 -86.6 0.7 Honduras
hr 45.4 16.4 0.5 Croatia
ht 19.0 -72.6 0.3 Haiti
hu 47.2 19.4 0.8 Hungary
id -2.2 113.5 3.0 Indonesia
ie 53.2 -8.1 0.8 Ireland
il 31.4 35.0 0.4 Israel
in 22.4 79.0 4.5 India
iq 33.1 43.8 1.5 Iraq
ir 32.6 54.3 3.0 Iran
is 64.9 -18.6 0.7 Iceland
it 43.0 12.3 1.0 Italy
jm 18.1 -77.3 0.2 Jamaica
jo 31.3 36.8 0.6 Jordan
jp 36.2 138.3 0.9 Japan
ke 0.6 37.9 1.8 Kenya
kg 41.5 74.6 1.0 Kyrgyzstan
kh 12.7 104.9 0.9 Cambodia
km -11.8 43.5 0.2 Comoros
kp 40.2 127.2 0.8 North Korea
kr 36.4 127.9 0.8 South Korea
kw 29.3 47.6 0.3 Kuwait
kz 48.2 67.3 5.0 Kazakhstan
la 18.5 103.7 0.9 Laos
lb 33.9 35.9 0.2 Lebanon
lc 13.9 -61.0 0.1 Saint Lucia
li 47.1 9.6 0.1 Liechtenstein
lk 7.6 80.7 0.6 Sri Lanka
lr 6.4 -9.3 0.7 Liberia
ls -29.6 28.2 0.4 Lesotho
lt 55.3 23.9 0.7 Lithuania
lu 49.8 6.1 0.1 Luxembourg
lv 56.9 24.9 0.6 Latvia
ly 27.0 18.0 3.5 Libya
ma 31.9 -6.3 1.3 Morocco
mc 43.7 7.4 0.1 Monaco
md 47.2 28.5 0.5 Moldova
me 42.8 19.3 0.3 Montenegro
mg -19.4 46.7 1.4 Madagascar
mk 41.6 21.7 0.4 North Macedonia
ml 17.4 -3.5 3.0 Mali
mm 21.2 96.5 1.4 Myanmar
mn 46.8 103.1 3.5 Mongolia
mo 22.2 113.6 0.1 Macau
mr 20.3 -10.3 2.5 Mauritania
mt 35.9 14.4 0.1 Malta
mu -20.3 57.6 0.2 Mauritius
mv 3.7 73.2 0.2 Maldives
mw -13.2 34.3 0.7 Malawi
mx 23.9 -102.5 3.0 Mexico
my 3.9 102.2 0.9 Malaysia
mz -17.3 35.5 2.0 Mozambique
na -22.1 17.2 2.3 Namibia
nc -21.3 165.5 0.3 New Caledonia
ne 17.4 9.4 3.0 Niger
ng 9.6 8.1 2.2 Nigeria
ni 12.8 -85.0 0.8 Nicaragua
nl 52.2 5.5 0.6 Netherlands
no 61.5 9.0 1.2 Norway
np 28.3 84.0 0.7 Nepal
nz -41.8 172.8 1.2 New Zealand
om 20.6 56.1 1.3 Oman
pa 8.5 -80.1 0.5 Panama
pe -9.2 -74.4 2.5 Peru
pg -6.5 144.3 1.3 Papua New Guinea
ph 13.0 122.0 1.5 Philippines
pk 29.9 69.4 2.2 Pakistan
pl 52.1 19.4 1.4 Poland
pr 18.2 -66.5 0.2 Puerto Rico
ps 32.0 35.2 0.2 Palestine
pt 39.6 -8.2 0.7 Portugal
py -23.2 -58.4 1.3 Paraguay
qa 25.3 51.2 0.2 Qatar
ro 45.9 25.0 1.1 Romania
rs 44.2 20.8 0.6 Serbia
ru 58.0 70.0 9.0 Russia
rw -2.0 29.9 0.4 Rwanda
sa 24.1 44.5 3.5 Saudi Arabia
sb -9.0 159.6 0.5 Solomon Islands
sc -4.7 55.5 0.1 Seychelles
sd 16.0 30.0 3.0 Sudan
se 61.0 15.0 1.6 Sweden
sg 1.4 103.8 0.1 Singapore
si 46.1 14.8 0.3 Slovenia
sk 48.7 19.5 0.5 Slovakia
sl 8.6 -11.8 0.5 Sierra Leone
sm 43.9 12.5 0.1 San Marino
sn 14.4 -14.5 0.9 Senegal
so 4.8 45.7 1.5 Somalia
sr 4.1 -55.9 0.8 Suriname
ss 7.3 30.2 2.0 South Sudan
sv 13.7 -88.9 0.3 El Salvador
sy 35.0 38.5 1.0 Syria
sz -26.6 31.5 0.3 Eswatini
td 15.3 18.6 3.0 Chad
tg 8.5 1.0 0.5 Togo
th 15.1 101.0 1.5 Thailand
tj 38.5 71.0 0.8 Tajikistan
tl -8.8 125.8 0.3 East Timor
tm 39.1 59.4 1.7 Turkmenistan
tn 34.1 9.6 0.9 Tunisia
tr 39.1 35.2 1.8 Turkey
tt 10.4 -61.3 0.1 Trinidad and Tobago
tw 23.8 121.0 0.4 Taiwan
tz -6.3 34.8 2.2 Tanzania
ua 49.0 31.4 2.0 Ukraine
ug 1.3 32.4 1.1 Uganda
us 39.5 -98.5 7.0 United States
uy -32.8 -56.0 0.9 Uruguay
uz 41.8 63.1 1.8 Uzbekistan
ve 7.1 -66.2 2.0 Venezuela
vn 16.5 107.0 0.9 Vietnam
vu -15.4 166.9 0.3 Vanuatu
xk 42.6 20.9 0.2 Kosovo
ye 15.9 47.6 1.4 Yemen
za -29.0 25.1 2.8 South Africa
zm -13.5 27.8 2.0 Zambia
zw -19.0 29.9 1.4 Zimbabwe
uk 52.8 -1.6 1.2 United Kingdom
eu 49.5 11.5 4.0 European Union
africa 3.0 20.0 8.0 Africa
asia 34.0 90.0 10.0 Asia
na-east 40.5 -76.0 2.5 North America, east
na-west 40.0 -119.0 2.5 North America, west
sa-east -20.0 -46.0 2.5 South America, east
us-east 38.8 -78.5 2.5 United States, east
us-central 41.0 -95.0 2.5 United States, centre
us-south 31.5 -97.0 2.0 United States, south
us-west 40.5 -119.5 2.5 United States, west
ca-central 46.5 -73.5 1.5 Canada, centre
ca-west 52.0 -114.5 1.5 Canada, west
eu-west 49.0 1.0 1.8 Europe, west
eu-central 50.3 9.8 1.8 Europe, centre
eu-north 60.5 15.5 1.8 Europe, north
eu-south 43.3 11.8 1.3 Europe, south
eu-east 51.0 21.0 1.8 Europe, east
ap-south 19.5 76.0 2.5 Asia, south
ap-southeast 3.5 102.3 0.8 Asia, south-east
ap-northeast 36.2 138.3 0.9 Asia, north-east
ap-east 23.2 113.6 0.8 Asia, east
me-central 24.2 54.2 0.8 Middle East, centre
me-south 25.0 47.0 1.2 Middle East, south
af-south -30.0 24.5 1.8 Africa, south
"""

#: Other words for a code, besides the full name.
_ALIASES = {
    "usa": "us",
    "united-states-of-america": "us",
    "america": "us",
    "great-britain": "uk",
    "britain": "uk",
    "england": "uk",
    "scotland": "uk",
    "wales": "uk",
    "europe": "eu",
    "el": "gr",
    "czech-republic": "cz",
    "holland": "nl",
    "korea": "kr",
    "uae": "ae",
    "burma": "mm",
    "turkiye": "tr",
    "macedonia": "mk",
    "swaziland": "sz",
    "cote-d-ivoire": "ci",
    "timor-leste": "tl",
}


@dataclass(frozen=True, slots=True)
class Region:
    code: str
    lat: float
    lon: float
    spread: float  #: maximum, in degrees of latitude
    name: str


@dataclass(frozen=True, slots=True)
class Place:
    """The place where a node is shown. Without coordinates it is not on the map."""

    label: str
    lat: float | None = None
    lon: float | None = None


NOWHERE = Place(UNKNOWN)


def _read() -> dict[str, Region]:
    found: dict[str, Region] = {}
    for line in _TABLE.strip().splitlines():
        code, lat, lon, spread, name = line.split(maxsplit=4)
        found[code] = Region(code, float(lat), float(lon), float(spread), name)
    return found


REGIONS = _read()
_BY_NAME = {"-".join(region.name.lower().split()): region for region in reversed(REGIONS.values())}


def region_called(word: str) -> Region | None:
    """A region by code, name or alias. `us-east-b` means `us-east`, or else `us`."""
    key = "-".join(word.strip().lower().replace("-", " ").split())
    while key:
        found = REGIONS.get(_ALIASES.get(key, key)) or _BY_NAME.get(key)
        if found is not None:
            return found
        key = key.rpartition("-")[0]
    return None


def place_of(region: str, node_id: str, *, stated: tuple[float, float] | None = None) -> Place:
    """The place of a node in this region. `stated`: latitude and longitude given by its owner."""
    found = region_called(region)
    if stated is not None:
        label = "stated by its owner" if found is None else f"{found.name}, stated by its owner"
        lat, lon = round_place(*stated)
        return _spread(label, node_id, lat=lat, lon=lon, reach=STATED_STEP / 2)
    if found is None:
        return NOWHERE if not region else Place(f"region {region}, not on the map")
    return _spread(found.name, node_id, lat=found.lat, lon=found.lon, reach=found.spread)


def parse_place(text: str) -> tuple[float, float]:
    """Parse a stated place such as `52.5,13.4`, and round it."""
    parts = text.split(",")
    try:
        lat, lon = (float(part) for part in parts)
    except ValueError:
        raise ValueError(f"{text!r} is not a place; {_FORM}") from None
    return round_place(lat, lon)


def round_place(lat: float, lon: float) -> tuple[float, float]:
    """Round a stated place. Refuses places that are not on Earth."""
    if not (math.isfinite(lat) and math.isfinite(lon) and -90 <= lat <= 90 and -180 <= lon <= 180):
        raise ValueError(f"this is not on Earth; {_FORM}")
    return round(lat, 1), round(lon, 1)


def _spread(label: str, node_id: str, *, lat: float, lon: float, reach: float) -> Place:
    """Uniform over a disc, which is wider in longitude towards the poles so that it stays a disc on the ground."""
    digest = hashlib.sha256(node_id.encode()).digest()
    angle = int.from_bytes(digest[:8]) / 2**64 * 2 * math.pi
    distance = math.sqrt(int.from_bytes(digest[8:16]) / 2**64) * reach
    north = max(-90.0, min(90.0, lat + distance * math.sin(angle)))
    east = lon + distance * math.cos(angle) / max(0.2, math.cos(math.radians(lat)))
    return Place(label, round(north, 3), round((east + 180) % 360 - 180, 3))
