insert into public."Artist" ("ArtistId", "Name") values (1, N'AC/DC'), (2, N'Accept'), (3, N'Antônio Carlos "Tom" Jobim');
insert into public."Album" ("AlbumId", "Title", "ArtistId") values (1, N'For Those About To Rock We Salute You', 1), (2, N'Balls to the Wall', 2);
insert into public."Employee" ("EmployeeId", "LastName", "ReportsTo", "HireDate") values (1, N'Adams', null, '2002/8/14'), (2, N'Edwards', 1, '2002/5/1');
insert into public."Customer" ("CustomerId", "FirstName", "SupportRepId") values (1, N'Luís', 2), (2, N'Leonie', 2);
insert into public."Track" ("TrackId", "Name", "AlbumId", "UnitPrice") values (1, N'For Those About To Rock', 1, 0.99), (2, N'Balls to the Wall', 2, 0.99);
insert into public."Playlist" ("PlaylistId", "Name") values (1, N'Music'), (2, N'Movies');
insert into public."PlaylistTrack" ("PlaylistId", "TrackId") values (1, 1), (1, 2);
